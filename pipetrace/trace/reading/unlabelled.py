"""Compute that nothing labels, matched with the order in which a schedule has it.

Each rank's pieces of work are laid against its list of actions: in order, a piece holding one action, or none (zeroing
gradients, splitting a batch), or several of one kind where nothing lies between them. No action may come before what
it waits for was posted to be received, nor behind the sending of what it makes. Of all ways that leave no action over,
the one that leaves the least work over is taken. How well it fits is said, by what repeats; what does not fit is
refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from pipetrace.action import IntArray, Kind, code_kind, code_stage, code_text
from pipetrace.errors import TraceError
from pipetrace.trace.reading.device import Device
from pipetrace.trace.reading.model import Compute, Match, RankStep, RankSteps, Span
from pipetrace.trace.reading.p2p import Transfer, Transfers
from pipetrace.trace.reading.recompute import Recomputed
from pipetrace.trace.reading.wanted import Wanted, attach_in_order
from pipetrace.trace.reading.work import Piece, Work, pieces_of, tile_of

LEAST_CONFIDENCE = 0.75
"""Below this share of explained work a trace is said not to be of the schedule."""
MOST_OUTSIDE = 0.1
"""Nor is it where more than this share of the compute time lies between actions."""
_MOST_IN_A_PIECE = 64
_HINT = "give the schedule that was run, with its -m; or record with labels, which `docs/reading.md` describes"


def match_steps(
    result: RankSteps,
    rank: int,
    schedule: str,
    wanted: Sequence[Wanted],
    work: Work,
    device: Device | None,
    transfers: Transfers,
    windows: Mapping[str, Span],
    again: Recomputed,
) -> None:
    """Finds the actions of a rank in its work.

    Args:
        result: Its steps are added to, and how they were matched.
        rank: For messages.
        schedule: Its name.
        wanted: The rank's list of one step.
        work: All of the rank.
        device: Its kernels.
        transfers: Its sends and receives.
        again: Forwards that it ran again.
        windows: Its steps; one of several steps is cut where the list begins again.

    Raises:
        TraceError: The work is not in that order.
    """
    names: dict[tuple[int, int], list[tuple[int, ...]]] = defaultdict(list)
    outside = inside = count = 0
    for name, window in windows.items():
        mine = work.within(window)
        posted = [t for t in transfers.all if window.start <= t.posted <= window.end]
        where = f"rank {rank}" if len(windows) == 1 else f"{name}, rank {rank}"
        steps = _steps_in(where, schedule, wanted, posted)
        whole = [w for _ in range(steps) for w in wanted]
        pieces = pieces_of(mine, [t.posted for t in posted])
        taken = _Alignment(mine, pieces, whole, posted).solve(where, schedule)
        rows = _trimmed(mine, whole, [(first, last) for _, first, last in taken])
        used = {piece for piece, _, _ in taken}
        span = range(min(used, default=0), max(used, default=-1) + 1)
        outside += sum(pieces[i].busy for i in span if i not in used)
        inside += sum(pieces[i].busy for i in used)
        count += len(whole)
        for at in range(steps):
            called = name if steps == 1 else f"{name}, {at}" if len(windows) > 1 else f"step {at}"
            part = slice(at * len(wanted), (at + 1) * len(wanted))
            step = _step(window.start, mine, device, wanted, rows[part], again)
            if steps > 1:
                step.begins = min((c.start for c in step.compute), default=window.start)
            reason = attach_in_order(step, wanted, _of_step(posted, steps, at))
            if reason is not None:
                raise TraceError(f"{where} is no {schedule}: {reason}", _HINT)
            result.steps[called] = step
        for w, (first, last) in zip(whole, rows, strict=True):
            result.counts[Kind(code_kind(w.code)).name] += 1
            names[code_kind(w.code), code_stage(w.code)].append(tuple(mine.name[first:last].tolist()))
    match = Match(schedule, count, _alike(names), outside / (inside + outside) if outside else 0.0)
    if match.confidence < LEAST_CONFIDENCE or match.outside > MOST_OUTSIDE:
        raise TraceError(
            f"rank {rank} does not look like {schedule}: {match.alike:.0%} of the operations repeat as its order says "
            f"(and the confidence must be {LEAST_CONFIDENCE:.0%}), and {match.outside:.0%} of the compute time lies "
            f"between its actions (at most {MOST_OUTSIDE:.0%})",
            _HINT,
        )
    result.match = match


def _steps_in(where: str, schedule: str, wanted: Sequence[Wanted], posted: Sequence[Transfer]) -> int:
    """How often the list stands in a window, by the transfers that it needs."""
    steps = 1
    for is_send, needed in ((False, sum(w.receive > 0 for w in wanted)), (True, sum(w.send > 0 for w in wanted))):
        found = sum(t.is_send == is_send for t in posted)
        if is_send and not found:
            continue  # senders on GPUs are often not recorded
        verb = "sent" if is_send else "received"
        if (needed == 0) != (found == 0) or (needed and found % needed):
            raise TraceError(f"{where} {verb} {found} times; a step of {schedule} would have {needed} there", _HINT)
        if needed:
            steps = found // needed
    return steps


def _of_step(posted: Sequence[Transfer], steps: int, at: int) -> list[Transfer]:
    part = []
    for is_send in (False, True):
        of_kind = [t for t in posted if t.is_send == is_send]
        each = len(of_kind) // steps
        part += of_kind[at * each : (at + 1) * each]
    return sorted(part)


class _Alignment:
    """Pieces of work against a list of actions, as a shortest path: over pieces, by how many actions are done."""

    def __init__(self, work: Work, pieces: Sequence[Piece], wanted: Sequence[Wanted], posted: Sequence[Transfer]):
        self._names = work.name
        self._pieces = pieces
        self._wanted = wanted
        self._backward = np.array([w.is_backward for w in wanted], dtype=np.bool_)
        self._run = _runs(np.array([code_kind(w.code) for w in wanted], dtype=np.int64))
        # Of the first j actions: receives that they need, and sends that they make.
        self._needs = np.cumsum([0, *(w.receive > 0 for w in wanted)])
        self._makes = np.cumsum([0, *(w.send > 0 for w in wanted)])
        self._receives = [t.posted for t in posted if not t.is_send]
        self._sends = [t.posted for t in posted if t.is_send]

    def solve(self, where: str, schedule: str) -> list[tuple[int, int, int]]:
        """(piece, first row, last row) of each action.

        Raises:
            TraceError: There is no way.
        """
        n = len(self._wanted)
        cost = np.full(n + 1, np.inf)
        cost[0] = 0
        chosen = []
        furthest = 0
        for piece in self._pieces:
            after = cost + piece.busy
            took: IntArray = np.zeros(n + 1, dtype=np.int64)
            for count in self._counts(piece):
                begins = self._allowed(piece, count)
                if begins.size:
                    better = cost[begins] + count - 1 < after[begins + count]
                    begins = begins[better]
                    after[begins + count] = cost[begins] + count - 1
                    took[begins + count] = count
            cost = after
            chosen.append(took)
            furthest = max(furthest, int(np.flatnonzero(np.isfinite(cost)).max()))
        if not np.isfinite(cost[n]):
            expected = code_text(self._wanted[furthest].code)
            raise TraceError(
                f"{where} is not in the order of {schedule}: of its {n} actions the first {furthest} can be found, "
                f"but then no {'backward' if self._backward[furthest] else 'forward'} that could be {expected}",
                _HINT,
            )
        return self._back(chosen)

    def _counts(self, piece: Piece) -> list[int]:
        """How many actions of one kind a piece can hold: it must repeat itself so often."""
        names = self._names[piece.first : piece.last]
        most = min(_MOST_IN_A_PIECE, int(self._run.max(initial=1)))

        def repeats(count: int) -> bool:
            each, rest = divmod(names.size, count)
            return not rest and bool((names.reshape(count, each) == names[:each]).all())

        return [count for count in range(1, most + 1) if count == 1 or repeats(count)]

    def _allowed(self, piece: Piece, count: int) -> IntArray:
        """The numbers of actions after which a piece can hold the next `count`."""
        begins = np.arange(len(self._wanted) - count + 1)
        received = int(np.searchsorted(self._receives, piece.at, side="right"))
        sent = int(np.searchsorted(self._sends, piece.at, side="right"))
        fits = (
            (self._backward[begins] == piece.is_backward)
            & (self._run[begins] >= count)
            & (self._needs[begins + count] <= received)
            & (self._makes[begins] >= sent)
        )
        allowed: IntArray = begins[fits]
        return allowed

    def _back(self, chosen: Sequence[IntArray]) -> list[tuple[int, int, int]]:
        at = len(self._wanted)
        taken = []
        for i in range(len(chosen) - 1, -1, -1):
            count = int(chosen[i][at])
            piece = self._pieces[i]
            if count:
                each = (piece.last - piece.first) // count
                parts = [(i, piece.first + k * each, piece.first + (k + 1) * each) for k in range(count)]
                taken += parts[::-1]
                at -= count
        return taken[::-1]


def _runs(kinds: IntArray) -> IntArray:
    """How many actions from each one on, itself included, are of its kind."""
    run = np.ones(kinds.size, dtype=np.int64)
    for i in range(kinds.size - 2, -1, -1):
        if kinds[i] == kinds[i + 1]:
            run[i] = run[i + 1] + 1
    return run


def _trimmed(work: Work, wanted: Sequence[Wanted], rows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rows without what stands before or behind the operations that all actions of their kind and stage share."""
    sequences = [tuple(work.name[first:last].tolist()) for first, last in rows]
    usual: dict[tuple[int, int], Counter[tuple[int, ...]]] = defaultdict(Counter)
    for w, sequence in zip(wanted, sequences, strict=True):
        usual[code_kind(w.code), code_stage(w.code)][sequence] += 1
    trimmed = []
    for w, sequence, (first, last) in zip(wanted, sequences, rows, strict=True):
        most = usual[code_kind(w.code), code_stage(w.code)].most_common(1)[0][0]
        extra = len(sequence) - len(most)
        at = next((k for k in range(extra + 1) if sequence[k : k + len(most)] == most), None) if extra > 0 else None
        trimmed.append((first, last) if at is None else (first + at, first + at + len(most)))
    return trimmed


def _alike(names: Mapping[tuple[int, int], Sequence[tuple[int, ...]]]) -> float:
    """Share of operations that an action shares with the usual one of its kind and stage, over all actions."""
    shared = total = 0
    for sequences in names.values():
        most = Counter(Counter(sequences).most_common(1)[0][0])
        for sequence in sequences:
            shared += sum((Counter(sequence) & most).values())
            total += max(len(sequence), most.total())
    return shared / total if total else 1.0


def _step(
    begins: int,
    work: Work,
    device: Device | None,
    wanted: Sequence[Wanted],
    rows: Sequence[tuple[int, int]],
    again: Recomputed,
) -> RankStep:
    step = RankStep(begins)
    for w, (first, last) in zip(wanted, rows, strict=True):
        start, end, on_device = tile_of(work, device, first, last)
        step.compute.append(Compute(w.code, 0, start, end))
        if on_device is not None:
            step.on_device[w.code] = on_device
        # The host came to the last of the rows at its start; on a CPU that one's own operations follow.
        until = end if device is None else int(work.at[last - 1]) + 1
        if w.is_backward and (time := again.within(int(work.at[first]), until)):
            step.recomputed[w.code] = min(time, end - start)
    return step
