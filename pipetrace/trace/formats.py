"""Which formats of traces are written, by a file's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from pipetrace.costs import Costs
from pipetrace.schedule import Schedule
from pipetrace.trace.naming import Arg
from pipetrace.trace.recorded import Recorded
from pipetrace.trace.tracks import Labelled, Tracks
from pipetrace.version import __version__

CHROME = (".json", ".json.gz")
PERFETTO = (".pftrace", ".pftrace.gz")
TRACES = (*CHROME, *PERFETTO)
_NO_METADATA: Mapping[str, object] = {}


class Colour(StrEnum):
    """What shares a colour, in formats that can say so; viewers colour others by kind."""

    MICROBATCH = "microbatch"
    KIND = "kind"


def write_trace(
    path: Path,
    timelines: Labelled,
    *,
    schedule: Schedule | None = None,
    costs: Costs | None = None,
    more: Callable[[slice], list[Arg]] | None = None,
    recorded: Sequence[Recorded] = (),
    metadata: Mapping[str, object] = _NO_METADATA,
    colour: Colour = Colour.MICROBATCH,
) -> None:
    """Writes one timeline, or two with the second held against the first, as a trace.

    Args:
        path: Where to; Perfetto's own format where its name ends in one of `PERFETTO`, else Chrome JSON. It is there
            only when it is whole.
        timelines: One or two, with what to call them, e.g. ("ideal", …), ("measured", …).
        schedule: What they are of; without it idle time is not explained.
        costs: What the first was simulated with.
        more: What else the tiles of the last say of themselves: annotations of some rows.
        recorded: What was recorded besides, on the clock of the last.
        metadata: What else the file shall say.
        colour: What shares a colour.

    Raises:
        OutputError: The file cannot be written.
        ScheduleError: The schedule is not valid.
        ValueError: Neither one nor two timelines, or a colour that is none.
    """
    colour = Colour(colour)  # its text will do
    tracks = Tracks(timelines, schedule, costs, more=more, recorded=recorded)
    about = {**metadata, "writer": f"pipetrace {__version__}", **tracks.about()}
    if path.name.lower().endswith(PERFETTO):
        from pipetrace.trace.perfetto import write_perfetto

        write_perfetto(path, tracks, about, by_microbatch=colour is Colour.MICROBATCH)
    else:
        from pipetrace.trace.chrome import write_chrome

        write_chrome(path, tracks, about)
