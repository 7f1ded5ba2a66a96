"""What hides the all-to-alls of MoE layers, for pages: of one timeline, or of an ideal and a measured one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipetrace.metrics import AllToAlls, Limit, PairOverlap, all_to_alls, pair_overlaps
from pipetrace.report.colours import HUES, WHITE, Group
from pipetrace.report.figure import FONT, GRID, INK, PLOT
from pipetrace.report.html import Bar, chart, facts, section, table
from pipetrace.report.overlap import InParts, behind_text, name_of, overlap_lines
from pipetrace.report.units import TimeUnit, percent
from pipetrace.schedule import Schedule
from pipetrace.timeline import Timeline

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Labelled = Sequence[tuple[str, AllToAlls]]
"""All-to-alls of one timeline or of several, each with what it is called; a single one needs no name."""

WORST_PAIRS = 10
HIDDEN, EXPOSED = HUES[Group.TRANSFER].base, HUES[Group.EXPOSED].base
HIDDEN_NOTE = "Hidden: while the rank computes; exposed: while it computes nothing"


def overlap_section(timeline: Timeline, unit: TimeUnit, parts: InParts | None = None) -> list[str]:
    """How much of the all-to-alls each rank, each kind and each pair hides; nothing where there is none.

    Args:
        timeline: An ideal.
        unit: Of all times.
        parts: How it came to be, for what limits its pairs.
    """
    of = all_to_alls(timeline)
    if not len(of.tiles):
        return []
    pairs = [] if parts is None else parts.pairs(of)
    return [
        section(
            "all-to-alls",
            "All-to-alls",
            facts(overlap_lines(of, unit, parts)),
            *_of_ranks_and_kinds([("", of)], unit),
            *_of_pairs([("", pairs)], timeline.ranks, unit),
        )
    ]


def compared_overlap_section(
    ideal: Timeline, measured: Timeline, unit: TimeUnit, first: str, schedule: Schedule
) -> str:
    """The same of an ideal, or what stands in its place, and of a measured timeline; empty where neither has any.

    Args:
        ideal, measured: The two.
        unit: Of all times.
        first: What the ideal is called.
        schedule: What they are of, for its pairs.
    """
    both = [(first, all_to_alls(ideal)), ("measured", all_to_alls(measured))]
    if not any(len(of.tiles) for _, of in both):
        return ""
    pairs = [(name, pair_overlaps(schedule, of)) for name, of in both]
    return section(
        "all-to-alls", "All-to-alls", *_of_ranks_and_kinds(both, unit), *_of_pairs(pairs, schedule.ranks, unit)
    )


def overlap_figure(given: Labelled, unit: TimeUnit) -> Figure:
    """Hidden and exposed time of each rank, a bar for each timeline."""
    rows = [
        (f"rank {rank}{', ' * bool(name)}{name}", hidden, exposed)
        for rank in range(max(of.tiles.ranks for _, of in given))
        for name, of in given
        for hidden, exposed in [(of.per_rank(of.hidden)[rank], of.per_rank(of.exposed)[rank])]
    ]
    return bars_of_overlap(rows, unit)


def bars_of_overlap(rows: Sequence[tuple[str, int, int]], unit: TimeUnit) -> Figure:
    """Bars of hidden and exposed all-to-all time, one a row.

    Args:
        rows: What each is called, and ns hidden and exposed.
        unit: Of the axis.
    """
    import plotly.graph_objects as go

    figure, at = go.Figure(), list(range(len(rows)))
    shares = [percent(exposed / (hidden + exposed)) if hidden + exposed else "" for _, hidden, exposed in rows]
    hidden_times, exposed_times = [hidden for _, hidden, _ in rows], [exposed for *_, exposed in rows]
    for name, colour, times in (("hidden", HIDDEN, hidden_times), ("exposed", EXPOSED, exposed_times)):
        figure.add_trace(
            go.Bar(
                orientation="h",
                x=[ns / unit.ns for ns in times],
                y=at,
                name=name,
                marker={"color": colour},
                text=[f" {share} exposed" for share in shares] if name == "exposed" and len(rows) <= _SAID else None,
                textposition="outside",
                cliponaxis=False,
                customdata=[[row[0], unit.text(ns)] for row, ns in zip(rows, times, strict=True)],
                hovertemplate=f"<b>%{{customdata[0]}}</b><br>{name} %{{customdata[1]}}<extra></extra>",
            )
        )
    step = max(1, len(rows) // _SAID)
    pitch = max(3, min(22, 900 // max(len(rows), 1)))
    longest = max((hidden + exposed for _, hidden, exposed in rows), default=0) / unit.ns
    figure.update_layout(
        template="none",
        barmode="stack",
        bargap=0.25,
        height=pitch * len(rows) + 92,
        margin={"l": 64, "r": 24, "t": 34, "b": 48},
        paper_bgcolor=WHITE,
        plot_bgcolor=PLOT,
        font={"family": FONT, "size": 12, "color": INK},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        xaxis={
            "title": {"text": f"all-to-all time ({unit.name})", "standoff": 6},
            "gridcolor": GRID,
            "zeroline": False,
            "range": [0, 1.2 * longest or 1],
            "tickformat": ",.6~g",
        },
        yaxis={
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": at[::step],
            "ticktext": [row[0] for row in rows[::step]],
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
    )
    return figure


_SAID = 40  # rows that are all named


def _of_ranks_and_kinds(given: Labelled, unit: TimeUnit) -> list[str]:
    what = "Hidden and exposed all-to-all time of each rank"
    return [
        chart("overlap", overlap_figure(given, unit), what, note=f"{HIDDEN_NOTE}."),
        '<div class="tables">',
        _rank_table(given, unit),
        *(_kind_table(name, of, unit) for name, of in given if len(of.tiles)),
        "</div>",
    ]


def _rank_table(given: Labelled, unit: TimeUnit) -> str:
    head, columns = ["rank"], []
    most = max(max(of.per_rank(of.duration), default=0) for _, of in given) or 1
    for title, field, hue in (
        ("all-to-all", "duration", "idle"),
        ("hidden", "hidden", "hidden"),
        ("exposed", "exposed", "exposed"),
    ):
        for name, of in given:
            values = of.per_rank(getattr(of, field))
            head.append(f"{title}{', ' * bool(name)}{name} ({unit.name})")
            columns.append([Bar(text, ns / most, hue) for text, ns in zip(unit.column(values), values, strict=True)])
    rows = [(f"rank {rank}", *cells) for rank, cells in enumerate(zip(*columns, strict=True))]
    said = [f"{name or 'in the step'} {percent(of.fraction_exposed)} of all exposed" for name, of in given]
    return table("All-to-alls of each rank", head, rows, note="; ".join(said))


def _kind_table(name: str, of: AllToAlls, unit: TimeUnit) -> str:
    by_what, behind = of.by_what(), of.hidden_behind()
    times = unit.column([whole for whole, _ in by_what.values()])
    exposed = unit.column([out for _, out in by_what.values()])
    rows: list[tuple[str | Bar, ...]] = [
        (
            name_of(what),
            time,
            Bar(text, out / whole if whole else 0.0, "exposed"),
            behind_text(behind.get(what, {}), whole),
        )
        for (what, (whole, out)), time, text in zip(by_what.items(), times, exposed, strict=True)
    ]
    head = ("all-to-all", f"time ({unit.name})", f"exposed ({unit.name})", "hidden behind")
    return table(f"What hides them{', ' * bool(name)}{name}", head, rows, note="of each kind, all ranks together")


def _of_pairs(given: Sequence[tuple[str, Sequence[PairOverlap]]], ranks: int, unit: TimeUnit) -> list[str]:
    """What limits the pairs of each rank, and those of the last timeline with most exposed."""
    some = [(f"{', ' * bool(name)}{name}", pairs) for name, pairs in given if pairs]
    if not some:
        return []
    limits = [_limit_table(f"What limits the pairs{name}", pairs, ranks, unit) for name, pairs in some]
    name, pairs = some[-1]
    return ['<div class="tables">', *limits, _worst_table(f"The pairs with most exposed{name}", pairs, unit), "</div>"]


def _limit_table(caption: str, pairs: Sequence[PairOverlap], ranks: int, unit: TimeUnit) -> str:
    mine = [[pair for pair in pairs if pair.rank == rank] for rank in range(ranks)]
    some = [(rank, of_rank) for rank, of_rank in enumerate(mine) if of_rank]
    exposed = unit.column([sum(pair.exposed for pair in of_rank) for _, of_rank in some])
    rows: list[tuple[str | Bar, ...]] = [
        (
            f"rank {rank}",
            f"{len(of_rank):,}",
            *(f"{sum(pair.limit is limit for pair in of_rank):,}" for limit in Limit),
            out,
        )
        for (rank, of_rank), out in zip(some, exposed, strict=True)
    ]
    head = ("rank", "pairs", *(f"by {limit}" for limit in Limit), f"exposed ({unit.name})")
    note = (
        "compute: all is hidden; communication: the all-to-all lane has more to do than the compute lane; "
        "order: it has not, but they do not match"
    )
    return table(caption, head, rows, note=note)


def _worst_table(caption: str, pairs: Sequence[PairOverlap], unit: TimeUnit) -> str:
    worst = sorted(pairs, key=lambda pair: (-pair.exposed, pair.start))[:WORST_PAIRS]
    columns = [unit.column([pair.end - pair.start for pair in worst])]
    columns += [
        unit.column([getattr(pair, name) for pair in worst]) for name in ("compute", "all_to_all", "hidden", "exposed")
    ]
    rows: list[tuple[str | Bar, ...]] = [
        (str(pair.pair), str(pair.rank), *cells, str(pair.limit))
        for pair, cells in zip(worst, zip(*columns, strict=True), strict=True)
    ]
    times = (f"{name} ({unit.name})" for name in ("time", "compute", "all-to-all", "hidden", "exposed"))
    return table(caption, ("pair", "rank", *times, "limit"), rows, note=f"{len(worst):,} of {len(pairs):,}")
