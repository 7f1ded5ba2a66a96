"""Split every full backward into input and weight gradient (Qi et al. 2023, arXiv:2401.10241)."""

from __future__ import annotations

from pipetrace.action import NO_ACTION, SEND_KINDS, Kind, code_kind, with_kind
from pipetrace.passes.lists import Entry, check_whole_stages, entries, with_lists
from pipetrace.schedule import Schedule


def split_backward(schedule: Schedule) -> Schedule:
    """Every B becomes an I and, directly behind it, a W; a pair F&B becomes F&I and its W follows the pair.

    Where sends are listed, those of an I stay between it and its W: that they can leave earlier is what a backward is
    split for.

    Args:
        schedule: Any valid one; what is split already stays as it is.

    Returns:
        A schedule without B.

    Raises:
        ScheduleError: The schedule is not valid, or in parts of layers.
    """
    check_whole_stages(schedule)
    schedule.validate()
    lists = []
    for rank in range(schedule.ranks):
        mine: list[Entry] = []
        weight: Entry | None = None
        for code, partner in entries(schedule, rank):
            if weight is not None and code_kind(code) not in SEND_KINDS:
                mine.append(weight)
                weight = None
            backward = code if partner == NO_ACTION else partner
            if code_kind(backward) != Kind.B:
                mine.append((code, partner))
                continue
            split = with_kind(backward, Kind.I)
            mine.append((split, NO_ACTION) if partner == NO_ACTION else (code, split))
            weight = with_kind(backward, Kind.W), NO_ACTION
        if weight is not None:
            mine.append(weight)
        lists.append(mine)
    return with_lists(schedule, lists)
