"""Measured costs, for the terminal, as plain values and as a costs file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetrace.costs_io import costs_to_dict
from pipetrace.fit import Fit, Spread
from pipetrace.report.console import stdout_console
from pipetrace.report.units import unit_for
from pipetrace.trace.files import replacing

if TYPE_CHECKING:
    from rich.console import Console

    from pipetrace.trace.recording import Recording

SCHEMA = 1
_TAKEN = "between two stages the median of those awaited from before their start, or the fastest; the median of these"
_HEAD = ("times", "10 %", "median", "90 %")


def fit_summary(fitted: Fit, recording: Recording) -> dict[str, Any]:
    """What `fit --json` prints; times in ns."""
    return {
        "schema": SCHEMA,
        "source": recording.source,
        "steps": list(recording.step_names),
        "costs": costs_to_dict(fitted.costs),
        "actions": [
            {"stage": stage, "kind": kind, **_values(spread)} for (stage, kind), spread in fitted.actions.items()
        ],
        "transfers": None if fitted.transfers is None else _values(fitted.transfers),
        "transfers_between": [
            {"from_stage": source, "to_stage": target, **_values(spread)}
            for (source, target), spread in fitted.transfers_between.items()
        ],
        "notes": [*fitted.assumed, *recording.missing, *recording.notes],
    }


def _values(spread: Spread) -> dict[str, int]:
    return {
        "count": spread.count,
        "fastest_ns": spread.fastest,
        "low_ns": spread.low,
        "median_ns": spread.median,
        "high_ns": spread.high,
    }


def print_fit(fitted: Fit, recording: Recording, *, console: Console | None = None) -> None:
    """Prints the costs with their spread.

    Args:
        fitted: The costs.
        recording: What they were measured on.
        console: Where to; standard output when None.
    """
    from rich.text import Text

    from pipetrace.report.layout import named_values, table_of

    console = console or stdout_console()
    every = [*fitted.actions.values(), *([] if fitted.transfers is None else [fitted.transfers])]
    unit = unit_for(max(spread.high for spread in every))
    steps = "1 step" if len(recording.steps) == 1 else f"{len(recording.steps)} steps"

    def cells(spread: Spread) -> list[str]:
        return [f"{spread.count:,}", *(unit.number(time) for time in (spread.low, spread.median, spread.high))]

    transfers = "free: no transfer could be timed"
    if fitted.transfers is not None:
        transfers = f"{unit.text(fitted.costs.p2p)} from one rank to another: {_TAKEN}"
    console.print(named_values([("traces", recording.source), ("window", steps), ("transfers", transfers)]))
    console.print()
    rows = [[f"{stage} {kind}", *cells(spread)] for (stage, kind), spread in fitted.actions.items()]
    console.print(table_of(["stage", *_HEAD], rows, f"times of an action in {unit.name}"), highlight=False)
    if fitted.transfers_between:
        console.print()
        rows = []
        for (source, target), spread in fitted.transfers_between.items():
            times, *shares = cells(spread)
            rows.append([f"{source} to {target}", times, unit.number(spread.fastest), *shares])
        caption = (
            f"times of a transfer in {unit.name}, from both sides' being ready to its being picked up, which may be "
            "long after its arrival"
        )
        first, *shares = _HEAD
        console.print(table_of(["stages", first, "fastest", *shares], rows, caption), highlight=False)
    for line in (*fitted.assumed, *recording.missing, *recording.notes):
        console.print(Text(f"note: {line}"))


def write_costs(path: Path, fitted: Fit, recording: Recording) -> None:
    """Writes the costs as TOML, with their spread in comments.

    Raises:
        OutputError: It cannot be written.
    """
    import tomli_w

    lines = [
        f"# Measured on {recording.source}: medians over {len(recording.steps)} steps; in ns, from the tenth to the",
        "# ninetieth percentile:",
        *(f"#   stage {stage} {kind}: {_range(spread)}" for (stage, kind), spread in fitted.actions.items()),
    ]
    if fitted.transfers is not None:
        lines.append(f"#   a transfer: {_range(fitted.transfers)}; p2p is {_TAKEN}")
    lines += [f"# {line}" for line in fitted.assumed]
    text = "\n".join(lines) + "\n" + tomli_w.dumps(costs_to_dict(fitted.costs))
    with replacing(path) as file:
        file.write(text.encode())


def _range(spread: Spread) -> str:
    return f"{spread.low} ... {spread.high}, {spread.count} times"
