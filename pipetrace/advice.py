"""Which schedules fit into a device's memory, and which of them is the fastest."""

from __future__ import annotations

from collections.abc import Sequence

from pipetrace.compare import Comparison, Figures
from pipetrace.metrics import MemorySizes, StageSizes, memory_over_time


def gib(size: float) -> str:
    """Bytes as people compare them with a device's memory.

    >>> gib(42949672960)
    '40.0 GiB'
    """
    return f"{size / 2**30:,.1f} GiB"


def and_more(names: Sequence[str]) -> str:
    """Those that tie, three of them by name.

    >>> and_more(["zbv"]), and_more(["zbv", "interleaved-zb"]), and_more(["a", "b", "c", "d", "e"])
    ('zbv', 'zbv and interleaved-zb', 'a, b, c and 2 more')
    """
    named = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
    return " and ".join([", ".join(named[:-1]), named[-1]][len(named) == 1 :])


def bytes_needed(of: Figures, sizes: MemorySizes) -> int:
    """Bytes on the fullest rank at its fullest moment.

    Args:
        of: What was simulated.
        sizes: Of a stage of the plain pipeline, one a rank; a stage of this schedule is its share of that.
    """

    def share(whole: StageSizes) -> StageSizes:
        return StageSizes(*(round(getattr(whole, name) * of.size) for name in StageSizes.__slots__))

    cut = MemorySizes(share(sizes.default), {stage: share(each) for stage, each in sizes.stages.items()}, sizes.unit)
    return max(memory_over_time(of.timeline, cut).peak)


def advise(comparison: Comparison, sizes: MemorySizes, limit: int) -> list[str]:
    """A line for each setting: how many fit, which of them is the fastest, and what memory it costs to be faster.

    Args:
        comparison: What is judged.
        sizes: Of the model.
        limit: Bytes that a rank has.
    """
    return [
        (f"{comparison.variable} = {setting.label}: " if comparison.variable else "")
        + _line([(row.candidate.label, row.figures) for row in comparison.at(setting) if row.figures], sizes, limit)
        for setting in comparison.settings
    ]


def _line(built: list[tuple[str, Figures]], sizes: MemorySizes, limit: int) -> str:
    if not built:
        return "none can be built."
    fitting = [(label, of) for label, of in built if bytes_needed(of, sizes) <= limit]
    fastest = min(built, key=lambda one: one[1].makespan)
    if not fitting:
        label, of = min(built, key=lambda one: bytes_needed(one[1], sizes))
        return f"none fits {gib(limit)}; {label} needs least, {gib(bytes_needed(of, sizes))}."
    of = min((of for _, of in fitting), key=lambda of: of.makespan)
    best = [f"{label} ({gib(bytes_needed(one, sizes))})" for label, one in fitting if one.makespan == of.makespan]
    are = "is" if len(best) == 1 else "are"
    text = f"{len(fitting)} of {len(built)} fit {gib(limit)}; {and_more(best)} {are} the fastest of them"
    if fastest[1].makespan < of.makespan:
        shorter = 1 - fastest[1].makespan / of.makespan
        text += f"; {fastest[0]} would be {100 * shorter:.1f} % faster but needs {gib(bytes_needed(fastest[1], sizes))}"
    return text + "."
