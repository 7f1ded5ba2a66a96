"""What a timeline or a schedule amounts to: bubbles, phases, memory, critical path and what idle time waited for."""

from pipetrace.metrics.bindings import Reason
from pipetrace.metrics.bubbles import Bubbles, bubbles
from pipetrace.metrics.chunks import chunk_keys, halves
from pipetrace.metrics.critical_path import Step, critical_path
from pipetrace.metrics.gaps import Cause, Gap, gaps, idle_by_cause
from pipetrace.metrics.memory import MemoryOverTime, memory_over_time
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
    "Bubbles",
    "Cause",
    "Gap",
    "MemoryOverTime",
    "MemorySizes",
    "PeakInFlight",
    "PhaseIdle",
    "Phases",
    "Reason",
    "Series",
    "StageSizes",
    "Step",
    "bubbles",
    "chunk_keys",
    "critical_path",
    "gaps",
    "halves",
    "idle_by_cause",
    "in_flight",
    "memory_over_time",
    "parse_size",
    "peak_in_flight",
    "phases",
    "sizes_from_dict",
    "sizes_to_dict",
]
