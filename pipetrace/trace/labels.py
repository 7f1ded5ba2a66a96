"""What the names of ranges in a profiler's trace say.

Three ways of labelling are known::

    pipetrace        PP:0F3           compute           POST:1RECV_F3  WAIT:1RECV_F3   posting, waiting
                     PP:0F3@1.mlp     a part, an all-to-all in the thread of its lane; or it is posted and waited for
    torch runtime    PP:0F3           compute, in which the wait for its input hides
                     PP:1RECV_F3      posting           PP:0UNSHARD                    what concerns a whole stage
    torch gpipe      Forward 3        compute of the rank's only stage, in which posting and waiting hide

Others are told by patterns of the user's: `Labels`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, StrEnum
from functools import lru_cache
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

from pipetrace.action import (
    ALL_TO_ALL_PARTS,
    COMPUTE_KINDS,
    NO_ACTION,
    RECV_KINDS,
    SEND_KINDS,
    Action,
    Kind,
    Pair,
    code_microbatch,
    code_pipe,
    code_stage,
    pack,
    parse,
)
from pipetrace.errors import ActionError, TraceError
from pipetrace.shown import shown

if TYPE_CHECKING:
    import regex


class LabelStyle(StrEnum):
    """Who labelled a rank's trace."""

    PIPETRACE = "pipetrace"
    RUNTIME = "torch runtime"
    GPIPE = "torch gpipe"
    PATTERN = "--label"
    NONE = "none"


class Role(Enum):
    """What a labelled range is."""

    COMPUTE = 1
    POST = 2
    WAIT = 3
    WHOLE_STAGE = 4


class Label(NamedTuple):
    """A label: what it is, and the code of its action and of a pair's second half."""

    style: LabelStyle
    role: Role
    code: int
    partner: int = NO_ACTION


_GPIPE = re.compile(r"(Forward|Backward) (0|[1-9][0-9]{0,5})")
_STEP = re.compile(r"ProfilerStep\s*#\s*([0-9]{1,18})")
UNMARKED_STEP = "STEP"
"""What a range around a step is called where people mark it by hand."""


def step_number(name: str) -> int | None:
    """The number that torch.profiler gave a step; None where the name is no step's."""
    match = _STEP.fullmatch(name)
    return None if match is None else int(match[1])


COUNTED = -1
"""The microbatch of a label that names none: it is counted within its step."""

# How people call the kinds; what stands first is looked for first.
_WORDS = (
    (Kind.W, r"wgrad|weight|dw|bwd?_?w|w"),
    (Kind.I, r"dgrad|igrad|input|dx|bwd?_?i|i"),
    (Kind.B, r"backward|bwd|bw|bprop|b"),
    (Kind.F, r"forward|fwd|fw|fprop|f"),
)
_GROUPS = {"kind", "stage", "microbatch", "pipe"}
_MOST_SECONDS, _SECONDS_A_NAME = 2.0, 0.001
"""CPU time that patterns have for one name, and that each further name earns again where others used it up."""
_PATTERN_HINT = r"for example --label 'fwd mb(?P<microbatch>\d+) stage(?P<stage>\d+)'"


class Labels:
    """Reads names as labels: by patterns of the user's where there are any, and as torch and pipetrace label.

    Args:
        patterns: Regular expressions that match a whole name, with groups called `microbatch` (where there is none,
            microbatches are counted), `stage` (where there is none, it is the rank's), `pipe` and `kind`. Where there
            is no group `kind`, the pattern's own words say it: forward, fwd, backward, dgrad, wgrad and the like.
            They are matched by the package `regex`, which can be told to stop: Python's own `re` may take years.

    Raises:
        TraceError: A pattern is none, or says nothing of the kind.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._seconds = _MOST_SECONDS
        self._patterns = [(self._compiled(text), _kind_in(_words_of(text))) for text in patterns]
        for text, (pattern, kind) in zip(patterns, self._patterns, strict=True):
            if kind is None and "kind" not in pattern.groupindex:
                raise TraceError(
                    f"label pattern {shown(text)} does not say whether it is a forward or a backward",
                    "write fwd, bwd, dgrad or wgrad in it, or a group (?P<kind>...)",
                )

    @staticmethod
    def _compiled(text: str) -> regex.Pattern[str]:
        import regex

        try:
            pattern = regex.compile(text)
        except (regex.error, OverflowError, RecursionError) as error:
            raise TraceError(f"label pattern {shown(text)} is no regular expression: {error}", _PATTERN_HINT) from None
        if unknown := sorted(set(pattern.groupindex) - _GROUPS):
            raise TraceError(
                f"label pattern {shown(text)} has a group called {unknown[0]!r}",
                f"groups are called {', '.join(sorted(_GROUPS))}",
            )
        return pattern

    def read(self, name: str, rank: int) -> Label | None:
        """What a name says; see `read_label`.

        Raises:
            ActionError: It begins like a label, but names no action.
            TraceError: To tell takes a pattern seconds.
        """
        for pattern, kind in self._patterns:
            match = self._matched(pattern, name)
            if match is None:
                continue
            of = {group: text for group, text in match.groupdict().items() if text is not None}
            named = kind if "kind" not in of else _kind_in(of["kind"])
            try:
                if named is None:
                    raise ValueError
                stage, pipe = (int(of.get(group, other)) for group, other in (("stage", rank), ("pipe", 0)))
                microbatch = int(of["microbatch"]) if "microbatch" in of else COUNTED
                Action(named, stage, max(microbatch, 0), pipe)
            except ValueError:
                raise ActionError(f"{shown(name)} is matched by a label pattern, but names no action") from None
            return Label(LabelStyle.PATTERN, Role.COMPUTE, pack(named, stage, microbatch, pipe))
        return read_label(name, rank)

    def _matched(self, pattern: regex.Pattern[str], name: str) -> regex.Match[str] | None:
        begin = process_time()
        try:
            return pattern.fullmatch(name, timeout=self._seconds)
        except TimeoutError:
            raise TraceError(
                f"label pattern {shown(pattern.pattern)} takes seconds to tell whether it matches {shown(name)}",
                "write it without a repetition of what repeats, as (a+)+ is",
            ) from None
        finally:
            left = max(self._seconds - (process_time() - begin), 0)
            self._seconds = min(_MOST_SECONDS, left + _SECONDS_A_NAME)


def _words_of(pattern: str) -> str:
    """What stands in a pattern outside of its groups."""
    return re.sub(r"\(\?P<\w+>[^()]*\)|\\[a-zA-Z]", " ", pattern)


def _kind_in(text: str) -> Kind | None:
    for kind, words in _WORDS:
        if re.search(rf"(?:^|[^a-z])(?:{words})(?:[^a-z]|$)", text.lower()):
            return kind
    # Glued to something else: ForwardStep, backward_pass2.
    glued = ((Kind.B, "backward"), (Kind.F, "forward"))
    return next((kind for kind, word in glued if word in text.lower()), None)


@lru_cache(maxsize=65536)
def read_label(name: str, rank: int) -> Label | None:
    """What a name says.

    Args:
        name: Of a range.
        rank: Whose trace it is, which is the stage where a label names none.

    Returns:
        None where the name is no label.

    Raises:
        ActionError: It begins like a label, but names no action.
    """
    prefix, colon, text = name.partition(":")
    if colon and prefix in ("PP", "POST", "WAIT"):
        return _prefixed(prefix, text)
    match = _GPIPE.fullmatch(name)
    if match is None:
        return None
    kind = Kind.F if match[1] == "Forward" else Kind.B
    return Label(LabelStyle.GPIPE, Role.COMPUTE, Action(kind, rank, int(match[2])).code)


def _prefixed(prefix: str, text: str) -> Label:
    item = parse(text)
    if isinstance(item, Pair):
        action, partner = item.forward, item.backward.code
    else:
        action, partner = item, NO_ACTION
    transfer = action.kind in SEND_KINDS or action.kind in RECV_KINDS
    if prefix != "PP":
        if not transfer and action.part not in ALL_TO_ALL_PARTS:
            raise ActionError(f"{prefix}:{text} names no transfer")
        return Label(LabelStyle.PIPETRACE, Role.POST if prefix == "POST" else Role.WAIT, action.code)
    if transfer:
        return Label(LabelStyle.RUNTIME, Role.POST, action.code)
    role = Role.COMPUTE if action.kind in COMPUTE_KINDS else Role.WHOLE_STAGE
    return Label(LabelStyle.RUNTIME, role, action.code, partner)


def sender_of(receive: int) -> int:
    """The code of the send at the other end of a receive."""
    forward = receive & 31 == Kind.RECV_F
    stage = code_stage(receive) + (-1 if forward else 1)
    return pack(Kind.SEND_F if forward else Kind.SEND_B, stage, code_microbatch(receive), code_pipe(receive))


def receiver_of(send: int) -> int:
    """The code of the receive at the other end of a send."""
    forward = send & 31 == Kind.SEND_F
    stage = code_stage(send) + (1 if forward else -1)
    return pack(Kind.RECV_F if forward else Kind.RECV_B, stage, code_microbatch(send), code_pipe(send))


def transfer_of(compute: int, *, sends: bool) -> int:
    """The code of the receive that a forward or backward waits for, or of the send that it feeds."""
    forward = compute & 31 == Kind.F
    kinds = (Kind.SEND_F, Kind.SEND_B) if sends else (Kind.RECV_F, Kind.RECV_B)
    return pack(kinds[0] if forward else kinds[1], code_stage(compute), code_microbatch(compute), code_pipe(compute))
