"""What idle time waited for and the critical path, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipetrace.action import Action, Pair
from pipetrace.costs import Costs
from pipetrace.metrics import Bindings, Reason, Step, bindings, gaps_of, path_of, sums_of
from pipetrace.report.layout import table_of
from pipetrace.report.units import TimeUnit, percent
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

LONGEST_GAPS = 5
_MOST_LINES, _MOST_ACTIONS = 24, 4


def cause_tables(
    schedule: Schedule, timeline: Timeline, unit: TimeUnit, costs: Costs | None = None
) -> list[RenderableType]:
    """Idle time of each rank by cause, the longest gaps in words, and the critical path a stretch a line.

    Args:
        schedule: What the timeline is of.
        timeline: Ideal or measured.
        unit: Of all times.
        costs: What an ideal was simulated with.
    """
    of = bindings(schedule, timeline, costs)
    out: list[RenderableType] = []
    found = sorted(gaps_of(of), key=lambda gap: -gap.duration)
    if found:
        out.append(_idle_by_cause(of, unit))
        waiting = [gap for gap in found if gap.awaits is not None][:LONGEST_GAPS]
        times = (
            unit.column([gap.duration for gap in waiting]),
            unit.column([gap.start - timeline.span[0] for gap in waiting]),
        )
        rows = list(zip(*times, map(str, waiting), strict=True))
        out.append(_with_words(("idle", "from", "why"), rows, f"the {len(rows)} longest waits, in {unit.name}"))
    steps = path_of(of)
    if steps:
        out.append(_path(steps, unit, timeline.span[0]))
    return out


def _idle_by_cause(of: Bindings, unit: TimeUnit) -> RenderableType:
    sums = {cause: column for cause, column in sums_of(of).items() if any(column)}
    ranks = [str(rank) for rank in range(of.tiles.ranks)]
    columns = [ranks, *(unit.column(column) for column in sums.values())]
    caption = f"global idle by cause in {unit.name}"
    return table_of(["rank", *(cause.value for cause in sums)], list(zip(*columns, strict=True)), caption)


def _path(steps: Sequence[Step], unit: TimeUnit, zero: int) -> Table:
    """A line for each stretch that the path stays on one rank, the transfer that led there counted in."""
    stretches: list[list[Step]] = []
    for step in steps:
        if stretches and (
            step.reason is Reason.RANK or stretches[-1][-1].transfer or _goes_on(stretches[-1][-1], step)
        ):
            stretches[-1].append(step)
        else:
            stretches.append([step])
    moved = [sum(step.duration for step in stretch if step.transfer) for stretch in stretches]
    under_way = ["" if not ns else text for ns, text in zip(moved, unit.column(moved), strict=True)]
    starts = unit.column([stretch[0].start - zero for stretch in stretches])
    rows = []
    for stretch, start, transfer in zip(stretches, starts, under_way, strict=True):
        cause = next((step.cause for step in stretch if not step.transfer), stretch[0].cause)
        actions = [short(step.action) for step in stretch if not step.transfer]
        rows.append([start, *([transfer] if any(moved) else []), str(stretch[0].rank), _run(actions), cause])
    if len(rows) > _MOST_LINES:
        half = _MOST_LINES // 2
        left_out = ["…", *([""] if any(moved) else []), "", f"{len(rows) - 2 * half:,} more", ""]
        rows = [*rows[:half], left_out, *rows[-half:]]
    whole, late = sum(step.duration + step.delay for step in steps), sum(step.delay for step in steps)
    shares = [f"{percent(part / whole)} {name}" for part, name in ((sum(moved), "transfers"), (late, "host")) if part]
    head = ["from", *(["transfer"] if any(moved) else []), "rank", "runs", "why no earlier"]
    return _with_words(head, rows, "; ".join([f"critical path in {unit.name}", *shares]))


def _goes_on(before: Step, step: Step) -> bool:
    """Whether a part of a layer follows on another of its rank: the two lanes hand over to each other all the time."""
    parts = isinstance(step.action, Action) and step.action.part is not None
    return parts and step.rank == before.rank and not step.transfer


def short(action: Action | Pair) -> str:
    """An action in a line of many: a pair as 0F3&3B1."""
    return f"{action.forward}&{action.backward}" if isinstance(action, Pair) else str(action)


def _run(actions: Sequence[str]) -> str:
    if len(actions) <= _MOST_ACTIONS:
        return " ".join(actions)
    return f"{actions[0]} {actions[1]} … {actions[-1]} ({len(actions):,})"


def _with_words(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    """A table whose last column is a sentence, which may take several lines."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, caption=Text(caption), caption_justify="left", pad_edge=False, show_edge=False)
    for name in head[:-1]:
        table.add_column(Text(name), justify="left" if name == "runs" else "right", no_wrap=name != "runs")
    table.add_column(Text(head[-1]), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
