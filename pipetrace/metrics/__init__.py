"""What a timeline or a schedule amounts to: bubbles, phases and memory."""

from pipetrace.metrics.bubbles import Bubbles, bubbles
from pipetrace.metrics.chunks import chunk_keys, halves
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
    "MemoryOverTime",
    "MemorySizes",
    "PeakInFlight",
    "PhaseIdle",
    "Phases",
    "Series",
    "StageSizes",
    "bubbles",
    "chunk_keys",
    "halves",
    "in_flight",
    "memory_over_time",
    "parse_size",
    "peak_in_flight",
    "phases",
    "sizes_from_dict",
    "sizes_to_dict",
]
