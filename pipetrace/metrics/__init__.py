"""What a timeline or a schedule amounts to: bubbles, phases, memory, critical path and what idle time waited for."""

from pipetrace.metrics.bindings import Bindings, Reason, bindings
from pipetrace.metrics.bubbles import Bubbles, bubbles
from pipetrace.metrics.chunks import chunk_keys, halves
from pipetrace.metrics.critical_path import Step, critical_path, path_of
from pipetrace.metrics.gaps import Cause, Gap, gaps, gaps_of, idle_by_cause, sums_of
from pipetrace.metrics.memory import MemoryOverTime, memory_over_time, peak_in_flight_of
from pipetrace.metrics.overlap import AllToAlls, Limit, PairOverlap, all_to_alls, limits, pair_overlaps
from pipetrace.metrics.peaks import PeakInFlight, in_flight, peak_in_flight
from pipetrace.metrics.phases import PhaseIdle, Phases, phases
from pipetrace.metrics.series import Series
from pipetrace.metrics.sizes import (
    ALL_FREED_AT,
    MemorySizes,
    StageSizes,
    parse_size,
    sizes_from_dict,
    sizes_to_dict,
)

__all__ = [
    "ALL_FREED_AT",
    "AllToAlls",
    "Bindings",
    "Bubbles",
    "Cause",
    "Gap",
    "Limit",
    "MemoryOverTime",
    "MemorySizes",
    "PairOverlap",
    "PeakInFlight",
    "PhaseIdle",
    "Phases",
    "Reason",
    "Series",
    "StageSizes",
    "Step",
    "all_to_alls",
    "bindings",
    "bubbles",
    "chunk_keys",
    "critical_path",
    "gaps",
    "gaps_of",
    "halves",
    "idle_by_cause",
    "in_flight",
    "limits",
    "memory_over_time",
    "pair_overlaps",
    "parse_size",
    "path_of",
    "peak_in_flight",
    "peak_in_flight_of",
    "phases",
    "sizes_from_dict",
    "sizes_to_dict",
    "sums_of",
]
