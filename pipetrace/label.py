"""For training loops of one's own: which action runs, said in torch.profiler's trace, and which rank a trace is of.

With these any framework's run can be read, drawn and compared with its ideal. torch is imported where it is used.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pipetrace.action import RECV_KINDS, SEND_KINDS, Action, Pair, parse
from pipetrace.costs import Costs
from pipetrace.errors import ActionError, OutputError, ScheduleError
from pipetrace.schedule import Schedule

Doing = Literal["compute", "post", "wait"]
"""What happens inside a label: an action is computed; a transfer is posted, or waited for."""

_PREFIXES = {"compute": "PP:", "post": "POST:", "wait": "WAIT:"}


def label(action: str | Action | Pair, doing: Doing = "compute") -> AbstractContextManager[Any]:
    """Marks what runs inside it, to be used in a `with`.

    Put it around compute alone: a wait inside a label for compute would count as compute. Waits and posts have their
    own, which name the transfer; a wait inside a post, or the other way round, is misread as well.

    >>> import pipetrace
    >>> with pipetrace.label("3F2"):  # stage 3, forward of microbatch 2
    ...     pass

    Args:
        action: "3F2", "3B2", "3I2" or "3W2", "d1:3F2" in the second pipe, "(0F3;3B1)OVERLAP_F_B" for a pair; what
            concerns a whole stage, "3REDUCE_GRAD"; or a transfer, "1RECV_F2" for what stage 1 receives, "1SEND_B2" for
            the gradient that it sends.
        doing: "post" and "wait" go with transfers, "compute" with all else.

    Raises:
        ActionError: The text is no action, or `doing` does not go with it.
    """
    text = _text(action, doing)
    from torch.profiler import record_function

    return record_function(text)


@lru_cache(maxsize=65536)
def _text(action: str | Action | Pair, doing: str) -> str:
    """The label's text; looked through once for each action, as labels stand in hot loops."""
    item = parse(action) if isinstance(action, str) else action
    if doing not in _PREFIXES:
        raise ActionError(f"{doing!r} is nothing that a label marks", 'give "compute", "post" or "wait"')
    transfer = isinstance(item, Action) and (item.kind in SEND_KINDS or item.kind in RECV_KINDS)
    if transfer and doing == "compute":
        raise ActionError(f"{item} is a transfer, which nothing computes", 'give "post" or "wait" beside it')
    if not transfer and doing != "compute":
        raise ActionError(f"{item} is no transfer: it cannot be {doing}ed", "name what is sent or received")
    return f"{_PREFIXES[doing]}{item}"


def trace_handler(
    folder: Path | str,
    schedule: Schedule,
    rank: int,
    *,
    costs: Costs | None = None,
    replicas: int = 1,
    name: str = "own loop",
) -> Callable[[Any], None]:
    """What writes a rank's trace when a profile is ready, as torch's `tensorboard_trace_handler` does.

    To be given to `torch.profiler.profile(on_trace_ready=…)` on each rank; `pipetrace diff FOLDER` then needs nothing
    else. A later cycle of the profiler replaces what an earlier one wrote.

    Args:
        folder: Where `rank{r}_trace.json.gz` goes, and, from rank 0, the schedule; made if it is not there.
        schedule: What the ranks run; its name and sizes stand in the trace.
        rank: Global rank, replica by replica: replica × pipeline ranks + pipeline rank.
        costs: What actions are to take, if that is known beforehand; else the ideal takes what was measured.
        replicas: Copies of the pipeline.
        name: What was run, for the record.

    Raises:
        ScheduleError: There is no such rank, or the schedule is not valid.
    """
    schedule.validate()
    if not 0 <= rank < schedule.ranks * replicas:
        raise ScheduleError(
            f"there is no rank {rank}: {replicas} x {schedule.ranks} ranks count from 0",
            "give the global rank, replica by replica",
        )
    from pipetrace.trace.identity import METADATA_KEY, clock_probe, identity
    from pipetrace.trace.run_folder import SCHEDULE_FILE, RunInfo, trace_name
    from pipetrace.trace.torch_csv import write_csv
    from pipetrace.version import __version__

    folder, probes = Path(folder), [clock_probe()]
    info = RunInfo(
        schedule=schedule.name,
        ranks=schedule.ranks,
        microbatches=schedule.microbatches,
        workload=name,
        costs=costs or Costs(),
        costs_are_exact=costs is not None,
        steps=0,
        versions={"pipetrace": __version__},
        replicas=replicas,
    )

    def write(profiler: Any) -> None:
        head = json.dumps({METADATA_KEY: identity(info, rank, [*probes, clock_probe()])})
        final = folder / trace_name(rank)
        raw = final.with_name(f".rank{rank}.json")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if rank == 0:
                write_csv(schedule, folder / SCHEDULE_FILE)
            profiler.export_chrome_trace(str(raw))
            _add_to_object(raw, head, final)
        except OSError as error:
            raise OutputError(
                f"{error.filename or final}: {error.strerror or error}", "give a folder to write"
            ) from None
        finally:
            with suppress(OSError):
                raw.unlink()

    return write


def _add_to_object(source: Path, head: str, target: Path) -> None:
    """Writes a JSON object, compressed, with more entries in front; `head` is an object of these."""
    partial = target.with_name(f"{target.name}.partial")
    with source.open("rb") as read, gzip.open(partial, "wb", compresslevel=4) as write:
        first = read.read(1 << 16).lstrip()
        if not first.startswith(b"{"):
            raise OSError(f"torch wrote no object: {first[:20]!r}")
        write.write(head[:-1].encode() + b"," + first[1:])
        while chunk := read.read(1 << 20):
            write.write(chunk)
    partial.replace(target)
