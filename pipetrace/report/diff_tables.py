"""What a diff tells beside its verdict, as rows of text: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipetrace.diff import Analysis
from pipetrace.diff.waits import Awaits
from pipetrace.report.units import TimeUnit, percent

MOST_WHAT_IFS = 8
MOST_BARS = 12
_LEAST_SAVED = 0.001  # of the step


@dataclass(frozen=True, slots=True)
class Rows:
    """A table.

    Args:
        name: What it is, a few words.
        head: Its columns.
        rows: Of text.
        caption: How it is read.
    """

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


def waterfall_steps(of: Analysis) -> list[tuple[str, int, int]]:
    """Name, ns that it adds, and makespan with it, from the ideal to the measured; the sum is exact.

    Of many compute bars the small ones are one.
    """
    fall = of.waterfall
    bars = [(bar.name, bar.size) for bar in fall.bars if bar.group is None]
    grouped = [(bar.name, bar.size) for bar in fall.bars if bar.group is not None]
    kept = {name for name, _ in sorted(grouped, key=lambda bar: -abs(bar[1]))[:MOST_BARS]}
    shown = [bar for bar in grouped if bar[0] in kept]
    if len(grouped) > len(shown):
        others = sum(size for name, size in grouped if name not in kept)
        shown.append((f"compute of {len(grouped) - len(shown)} other {fall.by}s", others))
    clocks = of.of.measured.makespan - fall.measured
    added = [*shown, *bars, ("not replayed", fall.residual), *([("clocks that differ", clocks)] if clocks else [])]
    now = fall.base
    steps = [(of.base_name, 0, now)]
    for name, size in added:
        now += size
        steps.append((name, size, now))
    return [*steps, ("measured", 0, now)]


def waterfall_rows(of: Analysis, unit: TimeUnit) -> Rows:
    """The waterfall as a table."""
    steps = waterfall_steps(of)
    sizes = unit.column([size for _, size, _ in steps[1:-1]], signed=True)
    totals = unit.column([total for _, _, total in steps])
    names = [steps[0][0], *(f"+ {name}" for name, _, _ in steps[1:-1]), steps[-1][0]]
    caption = f"what each adds to the makespan, and the makespan with it, in {unit.name}; replayed in this order"
    rows = list(zip(names, ["", *sizes, ""], totals, strict=True))
    return Rows("Waterfall", ("with", "adds", "makespan"), rows, caption)


def waiting_rows(of: Analysis, unit: TimeUnit) -> Rows:
    """Busy and idle time by what was awaited, of every recorded rank; they sum to the makespan."""
    _, measured = of.waits
    causes = [awaits for awaits in Awaits if any(measured.of(rank)[awaits] for rank in measured.busy)]
    columns = [[str(rank) for rank in measured.busy], unit.column(list(measured.busy.values()))]
    columns += [unit.column([measured.of(rank)[awaits] for rank in measured.busy]) for awaits in causes]
    caption = (
        f"measured time of each rank in {unit.name}: busy, and idle by what it waited for; a row sums to the makespan"
    )
    head = ["rank", "busy", *(str(awaits) for awaits in causes)]
    return Rows("Waiting", head, list(zip(*columns, strict=True)), caption)


def awaited_rows(of: Analysis, unit: TimeUnit, most: int = 10) -> Rows:
    """Who waited for whom, the longest first."""
    ideal, measured = of.waits
    pairs = sorted(
        ((key, ns) for key, ns in measured.idle.items() if key[2] >= 0), key=lambda item: (-item[1], item[0])
    )[:most]
    both = unit.column([*(ns for _, ns in pairs), *(ideal.idle.get(key, 0) for key, _ in pairs)])
    rows = [
        (f"rank {rank}", f"{_AWAITED[awaits]} rank {source}", both[len(pairs) + i], both[i])
        for i, ((rank, awaits, source), _) in enumerate(pairs)
    ]
    name = "before" if of.before else "ideal"
    return Rows("Whom ranks waited for", ("who", "waits for", name, "measured"), rows, f"the longest, in {unit.name}")


_AWAITED = {
    Awaits.INPUT: "an output of",
    Awaits.GRADIENT: "a gradient of",
    Awaits.LOCAL: "another lane of",
    Awaits.POST: "its own late post, from",
    Awaits.TRANSFER: "a transfer from",
    Awaits.UNRECORDED: "what was not recorded of",
}


def what_if_rows(of: Analysis, unit: TimeUnit) -> Rows:
    """Replays with one thing otherwise, those that save something."""
    measured = of.measured.makespan
    rows = [row for row in of.what_if if row.saved > _LEAST_SAVED * measured][:MOST_WHAT_IFS]
    times, saved = unit.column([row.makespan for row in rows]), unit.column([row.saved for row in rows])
    shares = [percent(row.saved / measured) for row in rows]
    caption = f"the measured step replayed with one thing otherwise, in {unit.name}"
    return Rows(
        "What if",
        ("what if", "makespan", "saved", "of the step"),
        list(zip((row.name for row in rows), times, saved, shares, strict=True)),
        caption,
    )


def schedule_rows(of: Analysis, unit: TimeUnit) -> Rows:
    """Ideals of other schedules and other m at this run's costs."""
    rows = of.other_schedules
    times, saved = unit.column([row.makespan for row in rows]), unit.column([row.saved for row in rows], signed=True)
    caption = (
        f"ideals in {unit.name} at this run's mean costs, the same model cut as each schedule wants; saved: against "
        f"{of.schedule.name}'s"
    )
    caption = "; ".join([caption, *of.assumed])
    return Rows(
        "Other schedules",
        ("schedule", "makespan", "saved"),
        list(zip((r.name for r in rows), times, saved, strict=True)),
        caption,
    )


def reference_rows(of: Analysis, unit: TimeUnit) -> Rows:
    """The step against costs fitted to it: work, schedule, imbalance, overhead; none where ranks were not recorded."""
    ref = of.references
    if ref is None:
        return Rows("Where the step goes", (), (), "")
    parts = [
        ("work: what a rank computes, mean", ref.work),
        ("schedule: idle with all stages alike", ref.schedule),
        ("imbalance: stages that differ", ref.imbalance),
        ("overhead: over the fitted ideal, these three", ref.overhead),
        ("measured", ref.measured),
    ]
    if ref.given is not None:
        parts.append(("for comparison: the ideal, at the given costs", ref.given))
    values = unit.column([ns for _, ns in parts])
    shares = [percent(ns / ref.measured) if ref.measured else "" for _, ns in parts]
    caption = f"the step against costs fitted to each stage of it, in {unit.name}"
    rows = list(zip((name for name, _ in parts), values, shares, strict=True))
    return Rows("Where the step goes", ("part", "time", "of the step"), rows, caption)


def stage_rows(of: Analysis, unit: TimeUnit) -> Rows:
    """What each stage takes for a microbatch."""
    kinds = [kind for kind in "FBIW" if any(kind in share.median for share in of.stages)]
    columns = [[str(share.stage) for share in of.stages]]
    columns += [unit.column([share.median.get(kind, 0) for share in of.stages]) for kind in kinds]
    columns += [unit.column([share.total for share in of.stages]), [f"{share.ratio:.2f}" for share in of.stages]]
    caption = f"median time of a microbatch in {unit.name}; against the mean stage. Embedding: first; head: last"
    return Rows("Stages", ["stage", *kinds, "sum", "against mean"], list(zip(*columns, strict=True)), caption)


def overlap_rows(of: Analysis, unit: TimeUnit) -> Rows:
    """The same actions beside transfers and alone."""
    rows = of.overlapped
    both = unit.column([ns for row in rows for ns in (row.alone, row.overlapped)])
    cells = [
        (
            f"{row.kind} of stage {row.stage}",
            both[2 * i],
            both[2 * i + 1],
            f"{row.ratio:.2f}",
            f"{row.counts[1]}, {row.counts[0]}",
        )
        for i, row in enumerate(rows)
    ]
    caption = f"medians in {unit.name} of the same actions alone and beside a transfer of their rank"
    return Rows("Alone and overlapped", ("actions", "alone", "overlapped", "ratio", "counts"), cells, caption)


def _fewer(ideal: Mapping[str, int], measured: Mapping[str, int]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Two tables of times by rank and more; of many ranks those that differ most, the others as one."""
    ranks = [name for name in {*ideal, *measured} if name.startswith("rank")]
    if len(ranks) <= MOST_BARS:
        return ideal, measured
    ranks.sort(key=lambda name: (-abs(measured.get(name, 0) - ideal.get(name, 0)), len(name), name))
    rest = ranks[MOST_BARS - 1 :]
    both = []
    for times in (ideal, measured):
        few = {name: ns for name, ns in times.items() if name not in rest}
        both.append(few | {f"{len(rest)} other ranks": sum(times.get(name, 0) for name in rest)})
    return both[0], both[1]


def path_rows(of: Analysis, unit: TimeUnit) -> Rows:
    """What both critical paths are spent on."""
    paths = of.paths
    ideal, measured = _fewer(paths.ideal_time, paths.measured_time)
    names = sorted({*ideal, *measured}, key=lambda name: (not name.startswith("rank"), len(name), name))
    both = unit.column([*(ideal.get(name, 0) for name in names), *(measured.get(name, 0) for name in names)])
    rows = [(name, both[i], both[len(names) + i]) for i, name in enumerate(names)]
    where = "the two are the same chain of actions"
    if paths.parts_at is not None:
        where = f"they part at {paths.parts_at.action}, which {paths.parts_at.cause}"
        if paths.joins_at is not None:
            where += f", and meet again at {paths.joins_at.action}"
    name = "before" if of.before else "ideal"
    return Rows("Critical path", ("on", name, "measured"), rows, f"time on the critical path in {unit.name}; {where}")
