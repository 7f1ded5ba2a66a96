"""What a tile is called in a viewer, and what it says when clicked."""

from __future__ import annotations

import numpy as np

from pipetrace.action import (
    NO_ACTION,
    Kind,
    Part,
    code_kind,
    code_layer,
    code_microbatch,
    code_part,
    code_pipe,
    code_stage,
    code_text,
)
from pipetrace.timeline import UNKNOWN, Timeline

_KIND = {int(kind): kind.name for kind in Kind}
_PART = {int(part): part.name.lower() for part in Part}


def several_stages(timeline: Timeline) -> bool:
    """Whether a rank holds more than one stage, so that a name needs the stage to say what it is."""
    holder = np.stack([timeline.replica, timeline.rank, code_pipe(timeline.code), code_stage(timeline.code)], axis=1)
    held = np.unique(holder, axis=0)
    return bool(np.unique(held[:, :2], axis=0).shape[0] < held.shape[0])


class Naming:
    """Names and arguments of a timeline's tiles.

    Args:
        timeline: Whose tiles.
        with_stage: Whether names carry the stage.
    """

    def __init__(self, timeline: Timeline, *, with_stage: bool) -> None:
        self._with_stage = with_stage
        self._code, self._partner = timeline.code.tolist(), timeline.partner.tolist()
        self._rank, self._replica = timeline.rank.tolist(), timeline.replica.tolist()
        self._start, self._end = timeline.start.tolist(), timeline.end.tolist()
        self._posted = timeline.posted.tolist()
        self._replicas = timeline.replicas

    def name(self, row: int) -> str:
        """`F 3`; with several stages a rank `F 3 s4`. Viewers colour by it with the digits left out."""
        partner = self._partner[row]
        name = self._of(self._code[row])
        return name if partner == NO_ACTION else f"{name} & {self._of(partner)}"

    def _of(self, code: int) -> str:
        words = [_KIND[code_kind(code)]]
        microbatch, part, pipe = code_microbatch(code), code_part(code), code_pipe(code)
        if microbatch >= 0:
            words.append(str(microbatch))
        if part:
            words.append(f"{_PART[part]} l{code_layer(code)}")
        if self._with_stage:
            words.append(f"s{code_stage(code)}")
        if pipe:
            words.append(f"d{pipe}")
        return " ".join(words)

    def args(self, row: int) -> dict[str, int | str]:
        """The action's identity, and its times in ns on the trace's clock."""
        code, partner, posted = self._code[row], self._partner[row], self._posted[row]
        args: dict[str, int | str] = {"action": code_text(code, partner), "stage": code_stage(code)}
        if (microbatch := code_microbatch(code)) >= 0:
            args["microbatch"] = microbatch
        args["pipe"], args["rank"] = code_pipe(code), self._rank[row]
        if self._replicas > 1:
            args["replica"] = self._replica[row]
        if partner != NO_ACTION:
            args["backward_stage"], args["backward_microbatch"] = code_stage(partner), code_microbatch(partner)
        args["duration_ns"] = self._end[row] - self._start[row]
        if posted != UNKNOWN:
            args["posted_ns"] = posted
        return args
