"""A comparison as a table for the terminal, and as plain values for `--json`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipetrace.advice import bytes_needed
from pipetrace.compare import Comparison, Figures, Row, Setting
from pipetrace.errors import DeadlockError
from pipetrace.metrics import MemorySizes
from pipetrace.part_costs import LayerCosts
from pipetrace.passes import Overlap
from pipetrace.report.console import stdout_console
from pipetrace.report.layout import in_groups
from pipetrace.report.overlap import layer_text
from pipetrace.report.summary import SCHEMA, schedule_summary
from pipetrace.report.units import TimeUnit, unit_for
from pipetrace.waiting import Wait, Waiting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

LEGEND = (
    "global idle = Σ (makespan - busy), in-span idle = Σ (a rank's own first-to-last span - busy), both as a share of "
    "p × makespan. Peak: most activations that a rank holds, in those of one microbatch on a full-size stage, if "
    "freed at I and if freed at W. "
)
PLAIN_LEGEND = "Params: full-size stages whose parameters a rank holds. Sends: messages between ranks in a step."
MOE_LEGEND = (
    "Exposed a2a: Σ over ranks of the time of all-to-alls while their rank computes nothing, and its share of all "
    "all-to-all time."
)


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of every row.

    Args:
        head: Two lines.
        value: What is compared; less is better.
        text: As it is printed.
    """

    head: tuple[str, str]
    value: Callable[[Figures], float]
    text: Callable[[float], str]


def columns_of(comparison: Comparison, sizes: MemorySizes | None) -> list[Column]:
    """The figures, in one unit of time for all rows."""
    unit = unit_of(comparison)
    decimals = unit.decimals(row.figures.makespan for row in comparison.rows if row.figures)

    def share(value: float) -> str:
        return f"{100 * value:.1f} %"

    def count(value: float) -> str:
        return f"{value:,.2f}".rstrip("0").rstrip(".")

    columns = [
        Column(("makespan", unit.name), lambda of: of.makespan, lambda value: f"{value / unit.ns:,.{decimals}f}"),
        Column(("global", "idle"), lambda of: of.global_idle, share),
        Column(("in-span", "idle"), lambda of: of.in_span_idle, share),
        Column(("peak", "at I"), lambda of: of.peak_freed_at_input_grad, count),
        Column(("peak", "at W"), lambda of: of.peak_freed_at_weight_grad, count),
    ]
    if has_all_to_alls(comparison):
        exposed = [row.figures.exposed for row in comparison.rows if row.figures]
        digits = unit.decimals(exposed)
        columns += [
            Column(("exposed", f"a2a {unit.name}"), lambda of: of.exposed, lambda ns: f"{ns / unit.ns:,.{digits}f}"),
            Column(("of all", "a2a"), lambda of: of.fraction_exposed, share),
        ]
    else:
        columns += [
            Column(("", "params"), lambda of: of.parameters, count),
            Column(("", "sends"), lambda of: of.transfers, lambda value: f"{value:,.0f}"),
        ]
    if sizes is not None:
        columns.append(
            Column(("memory", "GiB"), lambda of: bytes_needed(of, sizes), lambda value: f"{value / 2**30:,.1f}")
        )
    return columns


def has_all_to_alls(comparison: Comparison) -> bool:
    """Whether schedules are in parts of MoE layers."""
    return any(row.figures is not None and row.figures.all_to_alls is not None for row in comparison.rows)


def legend_of(comparison: Comparison) -> str:
    """What the columns mean."""
    return LEGEND + (MOE_LEGEND if has_all_to_alls(comparison) else PLAIN_LEGEND)


def unit_of(comparison: Comparison) -> TimeUnit:
    """The unit of all times of a comparison."""
    makespan = max((row.figures.makespan for row in comparison.rows if row.figures), default=0)
    return unit_for(makespan, [time for setting in comparison.settings for time in _times(setting).values()])


def _times(setting: Setting) -> dict[str, int]:
    """What an action costs, by its letter, in ns; B and FB only where they are given."""
    default, pair = setting.costs.default, setting.costs.pair
    times = {"F": default.F, "I": default.I, "W": default.W, "B": default.B}
    times |= {"FB": None if pair is None else pair.duration, "recompute": default.recompute or None}
    return {name: ns for name, ns in times.items() if ns is not None}


def heading(comparison: Comparison, setting: Setting) -> str:
    """What a setting is, in words; what is swept is said with each of its values."""
    sizes = [
        f"{name} = {number}"
        for name, number in (("p", setting.ranks), ("m", setting.microbatches))
        if name != comparison.variable
    ]
    costs, waiting, swept = setting.costs, setting.waiting, comparison.variable
    network, unit = costs.network, unit_of(comparison)
    numbers = ", ".join(f"{name} = {unit.number(ns)}" for name, ns in _times(setting).items())
    where = "a stage-chunk" if comparison.per_chunk else "a rank of the plain pipeline"
    differ = ", other stages differ" if any(of != costs.default for of in costs.stages.values()) else ""
    if costs.jitter is not None:
        differ += f", ±{100 * costs.jitter.share:g} % (seed {costs.jitter.seed})"
    parts = [", ".join(sizes), f"{numbers} {unit.name} on {where}{differ}"]
    if setting.overlap is not None or any(row.candidate.order is not None for row in comparison.rows):
        own = any(row.candidate.order is not None for row in comparison.rows)
        parts[1] = _of_layers(setting, swept, where, own_order=own)
    if costs.p2p and swept != "p2p":
        parts.append(f"transfers {unit.text(costs.p2p)}")
    if network.across is not None and network.ranks_per_node is not None:
        across = "" if swept == "p2p-across" else f" {unit.text(network.across.time(network.message_bytes))}"
        node = "" if swept == "ranks-per-node" else f" of {network.ranks_per_node} ranks"
        parts.append(f"between nodes{node}{across}")
    parts.append(_of_waiting(waiting, unit, said=swept == "wait"))
    return "; ".join(filter(None, parts))


def _of_layers(setting: Setting, swept: str, where: str, *, own_order: bool) -> str:
    """How many MoE layers there are, in which order unless schedules have their own, and what their parts cost."""
    overlap = setting.overlap or Overlap()
    layers = "layers as swept" if swept == "layers" else f"{overlap.layers} MoE layer{'s' * (overlap.layers != 1)}"
    order = "" if own_order or swept == "moe-order" or setting.overlap is None else f", {overlap.order}"
    text = f"{layers} on {where}{order}{', in whole stages' * setting.in_stages}"
    if swept in ("a2a", "weights"):
        return text
    return f"{text}: {layer_text(setting.costs.layer or LayerCosts())}"


def _of_waiting(waiting: Waiting, unit: TimeUnit, *, said: bool) -> str:
    """What of the waiting is not the default, in words; `said` where the policy stands elsewhere."""
    words = []
    if waiting.policy is not Wait.PREFETCH and not said:
        words.append(f"wait {waiting.policy}" + ("" if waiting.reorder else " in list order"))
    if waiting.ordered:
        words.append("ordered channels")
    if waiting.post:
        words.append(f"a post {unit.text(waiting.post)}")
    if waiting.spin:
        words.append(f"compute {100 * waiting.spin:g} % slower under a spinning receive")
    return ", ".join(words)


def print_comparison(
    comparison: Comparison,
    *,
    sizes: MemorySizes | None = None,
    advice: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Prints the table, what its columns mean, and the advice.

    Args:
        comparison: What is shown.
        sizes: Of the model, for a column of memory.
        advice: A line each.
        console: Where to; standard output when None.
    """
    from rich.text import Text

    console = console or stdout_console()
    for part in (
        Text(heading(comparison, comparison.rows[0].setting)),
        Text(""),
        _table(comparison, columns_of(comparison, sizes), console.width),
        Text(""),
        Text("\n".join(textwrap.wrap(legend_of(comparison), min(console.width, 100))), "dim"),
    ):
        console.print(part, highlight=False)
    if advice:
        console.print()
        for line in advice:
            console.print(Text(line, "bold"), highlight=False)


def _table(comparison: Comparison, columns: Sequence[Column], width: int) -> Text:
    """Written out by hand, since a row that could not be built tells why across all columns.

    Where the columns have no room beside each other there are several tables below each other.
    """
    from rich.text import Text

    cells = {
        row: [column.text(column.value(row.figures)) for column in columns] for row in comparison.rows if row.figures
    }
    widths = [
        max(map(len, (*column.head, *(mine[index] for mine in cells.values())))) for index, column in enumerate(columns)
    ]
    first = max(map(len, ("schedule", *(row.candidate.label for row in comparison.rows))))
    gap = 2 if first + sum(widths) + 2 * len(widths) <= width else 1
    first = max(_SHORTEST_NAME, min(first, max(width - sum(widths) - gap * len(widths), width // 3)))
    groups = in_groups(widths, first, width, gap=gap)

    def line(name: str, group: Sequence[int], texts: Sequence[str], styles: Sequence[str]) -> Text:
        out = Text(_short(name, first).ljust(first))
        for index in group:
            out.append(" " * gap + texts[index].rjust(widths[index]), styles[index])
        out.append("\n")
        return out

    out = Text()
    for number, group in enumerate(groups):
        for name, at in (("", 0), ("schedule", 1)):
            out.append(line(name, group, [column.head[at] for column in columns], ["dim"] * len(columns)))
        out.append("─" * (first + sum(widths[index] + gap for index in group)) + "\n", "dim")
        for setting in comparison.settings:
            rows = comparison.at(setting)
            if comparison.variable:
                out.append(f"{comparison.variable} = {setting.label}\n", "italic")
            for row in rows:
                if row.figures is not None:
                    out.append(line(row.candidate.label, group, cells[row], _best(rows, row, columns)))
                elif number == 0:
                    name = _short(row.candidate.label, first).ljust(first) + " " * gap
                    out.append(_why_not(name, row, width) + "\n", "dim")
        if number + 1 < len(groups):
            out.append("\n")
    out.rstrip()
    return out


_SHORTEST_NAME = 8
_MOST_REASON_LINES = 4


def _why_not(name: str, row: Row, width: int) -> str:
    """Why a row has no figures, behind its name."""
    what = "" if isinstance(row.error, DeadlockError) else "not built: "  # a deadlock's message begins with the word
    lines = textwrap.wrap(
        f"{name}{what}{row.reason}",
        width,
        subsequent_indent=" " * len(name),
        max_lines=_MOST_REASON_LINES,
        placeholder=" …",
        drop_whitespace=True,
    )
    return "\n".join(lines)


def _best(rows: Sequence[Row], row: Row, columns: Sequence[Column]) -> list[str]:
    """Bold where a row has the least of its setting."""
    built = [other.figures for other in rows if other.figures]
    assert row.figures is not None
    return [
        "bold" if len(built) > 1 and column.value(row.figures) == min(map(column.value, built)) else ""
        for column in columns
    ]


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def comparison_json(
    comparison: Comparison, *, sizes: MemorySizes | None = None, limit: int | None = None, advice: Sequence[str] = ()
) -> dict[str, Any]:
    """What `compare --json` prints: `schedules` as in gen, each with what a comparison adds; times in ns.

    Args:
        comparison: What is told.
        sizes: Of the model, for bytes on the fullest rank.
        limit: Bytes that a rank has, for whether it fits.
        advice: A line each.
    """
    built, refused = [], []
    for row in comparison.rows:
        swept = {"swept": {comparison.variable: row.setting.value}} if comparison.variable else {}
        if row.error is not None:
            refused.append(
                {
                    "label": row.candidate.label,
                    "ranks": row.setting.ranks,
                    "microbatches": row.setting.microbatches,
                    **swept,
                    "reason": f"{row.error.message} ({row.error.hint})" if row.error.hint else row.error.message,
                }
            )
        elif row.figures is not None:
            of = row.figures
            entry = schedule_summary(of.schedule, of.timeline, of.costs) | {
                "label": row.candidate.label,
                **swept,
                "in_span_fraction": of.in_span_idle,
                "peak_activations": {
                    "release_at_input_grad": of.peak_freed_at_input_grad,
                    "release_at_weight_grad": of.peak_freed_at_weight_grad,
                },
                "parameters": of.parameters,
                "transfers": of.transfers,
            }
            if row.candidate.order is not None:
                entry["moe_order"] = str(row.candidate.order)
            if sizes is not None:
                needed = bytes_needed(of, sizes)
                entry["memory_bytes"] = needed
                if limit is not None:
                    entry["fits"] = needed <= limit
            built.append(entry)
    return {
        "schema": SCHEMA,
        "costs_per": "chunk" if comparison.per_chunk else "rank",
        "schedules": built,
        "not_built": refused,
        **({"advice": list(advice)} if advice else {}),
    }
