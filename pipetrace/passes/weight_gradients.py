"""Where weight gradients stand: the one freedom that splitting the backward gives (Qi et al. 2023, arXiv:2401.10241).

Nothing waits for a W but the end of the step, so it may stand anywhere behind its I. Early it frees its activation
early, late it leaves its place to what others wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np

from pipetrace.action import NO_ACTION, SEND_KINDS, Action, Kind, code_kind
from pipetrace.costs import Costs
from pipetrace.errors import ScheduleError
from pipetrace.links import NO_ROW
from pipetrace.metrics import peak_in_flight
from pipetrace.passes.lists import Entry, check_whole_stages, entries, with_lists
from pipetrace.schedule import Schedule


class WeightRule(StrEnum):
    """Where a weight gradient goes."""

    AT_ONCE = "at-once"
    """Right behind its I: the least memory."""
    BUBBLES = "bubbles"
    """Into idle gaps that hold it whole, oldest first; before an F that a cap has no room for; the rest at the end."""
    LAGGED = "lagged"
    """The W of a rank's k-th I behind its (k + lag)-th, the rest at the end."""
    CAPPED = "capped"
    """As late as a cap on the activations in flight allows: before an F that it has no room for, or at the end."""


def place_weight_gradients(
    schedule: Schedule,
    rule: WeightRule,
    *,
    lag: int | Sequence[int] | None = None,
    caps: int | Sequence[int] | None = None,
    costs: Costs | None = None,
) -> Schedule:
    """Moves every W; what else stands in a list keeps its order. A full B stays whole: see `split_backward`.

    The weight gradients of a rank keep the order of their I. 1F1B split becomes ZB-H1 when lagged by the rank's
    number (m >= p), or in bubbles with caps of p at F = I = W (m > p).

    Args:
        schedule: Any valid one.
        rule: Where to; see `WeightRule`.
        lag: For `LAGGED`: I's between, from 0, for all ranks or one a rank.
        caps: For `CAPPED`, and if wanted for `BUBBLES`: most activations in flight freed at W (and B), in chunks, for
            all ranks or one a rank.
        costs: For `BUBBLES`: what the gaps are measured with; F = I = W = 1 ms and free transfers when None.

    Returns:
        The schedule with its weight gradients moved.

    Raises:
        ScheduleError: The schedule is not valid or in parts of layers, the arguments do not go together, or a cap is
            less than the order needs even if every W runs as early as it can; with rank and action.
    """
    if rule not in list(WeightRule):
        raise ScheduleError(f"weight gradients placed {rule!r}", f"rules are {', '.join(WeightRule)}")
    rule = WeightRule(rule)
    takes_lag, takes_caps = rule is WeightRule.LAGGED, rule in (WeightRule.BUBBLES, WeightRule.CAPPED)
    for what, given, takes, needs in (
        ("lag", lag, takes_lag, takes_lag),
        ("caps", caps, takes_caps, rule is WeightRule.CAPPED),
        ("costs", costs, rule is WeightRule.BUBBLES, False),
    ):
        if given is not None and not takes:
            raise ScheduleError(f"weight gradients placed {rule} take no {what}", f"leave {what} out")
        if given is None and needs:
            raise ScheduleError(f"weight gradients placed {rule} need {what}", f"give {what}")
    check_whole_stages(schedule)
    schedule.validate()
    if takes_caps:
        fills = rule is WeightRule.BUBBLES
        each = None if caps is None else _per_rank("caps", caps, schedule.ranks, least=1)
        order = _Filling(schedule, costs or Costs(), each, fills).run()
    else:
        order = _lagged(schedule, _per_rank("lag", lag or 0, schedule.ranks, least=0))
    return with_lists(schedule, order)


def _per_rank(what: str, given: int | Sequence[int], ranks: int, *, least: int) -> list[int]:
    each = [given] * ranks if isinstance(given, int) else list(given)
    if len(each) != ranks:
        raise ScheduleError(f"{len(each)} {what} for {ranks} ranks", "give one number, or one a rank")
    if min(each) < least:
        raise ScheduleError(f"{what} of {min(each)}", f"give {least} or more")
    return each


def _backward_kind(entry: Entry) -> int:
    """The kind of an entry, or of the backward half of a pair."""
    code, partner = entry
    return code_kind(code if partner == NO_ACTION else partner)


def _lagged(schedule: Schedule, lags: Sequence[int]) -> list[list[Entry]]:
    lists = []
    for rank, lag in enumerate(lags):
        mine: list[Entry] = []
        pending: deque[Entry] = deque()
        due = False  # the oldest W comes next, behind the sends of the I that made room for it
        for entry in entries(schedule, rank):
            kind = _backward_kind(entry)
            if kind == Kind.W:
                continue
            if due and kind not in SEND_KINDS:
                mine.append(pending.popleft())
                due = False
            mine.append(entry)
            if kind == Kind.I:
                pending.append(_weight_of(entry))
                due = len(pending) > lag
        lists.append([*mine, *pending])
    return lists


def _weight_of(entry: Entry) -> Entry:
    code, partner = entry
    return (code if partner == NO_ACTION else partner) - Kind.I + Kind.W, NO_ACTION


class _Filling:
    """Runs the ranks' lists without their weight gradients, and those where there is time, or no memory left.

    A rank's own times follow from its list and from when its inputs arrive, so any order of ranks will do in which
    producers come first.
    """

    def __init__(self, schedule: Schedule, costs: Costs, caps: Sequence[int] | None, fills: bool) -> None:
        links = schedule.links
        self.schedule, self.caps, self.fills = schedule, caps, fills
        duration = costs.durations(schedule)
        self.duration = duration.tolist()
        self.entries = list(zip(schedule.code.tolist(), schedule.partner.tolist(), strict=True))
        self.kind = code_kind(schedule.code).tolist()
        self.backward_kind = [_backward_kind(entry) for entry in self.entries]
        # For each of the two inputs of a row: the producing row, and from its start to the arrival.
        self.needs = []
        for producers, ready in zip((links.inputs, links.gradients), costs.ready(schedule, duration), strict=True):
            travels = costs.transfer_times(links.rank[producers], links.rank) * links.crosses(producers)
            self.needs.append((producers.tolist(), (ready[producers] + travels).tolist()))
        is_weight = np.flatnonzero(code_kind(schedule.code) == Kind.W)
        is_weight = np.flatnonzero(code_kind(schedule.code) == Kind.W)
        self.weight = dict(zip(links.local[is_weight].tolist(), is_weight.tolist(), strict=True))
        self.starts: list[int | None] = [None] * len(schedule)
        self.waiting: dict[int, list[int]] = {}
        self.runnable = list(range(schedule.ranks))

    def run(self) -> list[list[Entry]]:
        """The ranks' new lists."""
        lists: list[list[Entry]] = [[] for _ in range(self.schedule.ranks)]
        walks = [self._walk(rank, lists[rank]) for rank in range(self.schedule.ranks)]
        while self.runnable:
            rank = self.runnable.pop()
            awaited = next(walks[rank], None)
            if awaited is not None:
                self.waiting.setdefault(awaited, []).append(rank)
        return lists

    def _walk(self, rank: int, out: list[Entry]) -> Iterator[int]:
        """Fills the list of one rank; stops at each row of another rank that has to be run before."""
        pending: deque[int] = deque()
        now = held = 0
        cap = None if self.caps is None else self.caps[rank]
        for row in range(int(self.schedule.first[rank]), int(self.schedule.first[rank + 1])):
            if self.kind[row] == Kind.W:
                continue
            start = now
            for producers, after in self.needs:
                producer = producers[row]
                if producer != NO_ROW:
                    while (begun := self.starts[producer]) is None:
                        yield producer
                    start = max(start, begun + after[row])
            takes = self.kind[row] == Kind.F
            while pending:
                full = takes and cap is not None and held >= cap
                if not full and not (self.fills and now + self.duration[pending[0]] <= start):
                    break
                weight = pending.popleft()
                out.append(self.entries[weight])
                now += self.duration[weight]
                held -= 1
            if takes and cap is not None and held >= cap:
                raise ScheduleError(
                    f"rank {rank}: a cap of {cap} chunks has no room for {Action.from_code(self.entries[row][0])}: "
                    f"{held} are held, and no weight gradient is left to free one",
                    f"this order needs caps of at least {max(self._least())}",
                )
            start = max(start, now)
            out.append(self.entries[row])
            self.starts[row], now = start, start + self.duration[row]
            self.runnable += self.waiting.pop(row, [])
            held += takes
            if self.backward_kind[row] == Kind.I:
                pending.append(self.weight[row])
            held -= self.backward_kind[row] == Kind.B
        out += [self.entries[weight] for weight in pending]

    def _least(self) -> tuple[int, ...]:
        """The caps under which the order can run: its peaks with every W as early as it can be."""
        earliest = with_lists(self.schedule, _lagged(self.schedule, [0] * self.schedule.ranks))
        return peak_in_flight(earliest).release_at_weight_grad
