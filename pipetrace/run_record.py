"""Whether the files of a run folder tell of the same run as its traces do.

The traces carry in their own metadata what was run. A `schedule.csv` or `run.toml` that says something else was put
there from another run, and every figure of a diff would be wrong without looking so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipetrace.action import NO_ACTION, Kind, code_kind, code_text, whole_stage, with_kind
from pipetrace.diff import Diff
from pipetrace.errors import TraceError
from pipetrace.schedule import Schedule
from pipetrace.schedules import names
from pipetrace.shown import printable
from pipetrace.trace.run_folder import RUN_FILE, read_run_info
from pipetrace.waiting import waiting_from_dict

if TYPE_CHECKING:
    from pipetrace.trace.torch_profiler import Recording

_HINT = "put back the file of this run, or say what was run with --schedule NAME or --from FILE.csv"
_MOST_NAMED = 3


def check_record(folder: Path, recording: Recording) -> None:
    """Holds a folder's `run.toml`, where there is one, against the traces.

    Raises:
        TraceError: It cannot be read, or is of another run.
    """
    if recording.run is None or not (folder / RUN_FILE).is_file():
        return
    info = read_run_info(folder)
    for what in ("schedule", "ranks", "replicas", "microbatches", "started"):
        told, recorded = getattr(info, what), getattr(recording.run, what)
        if _plain(told) != _plain(recorded):
            raise TraceError(
                f"{folder / RUN_FILE} is of another run than the traces beside it: it names {what} {told}, "
                f"they {recorded}",
                f"put back the {RUN_FILE} of this run, or take it away",
            )


def _plain(value: str | int) -> str | int:
    """Without backslashes, which torch's profiler writes as slashes."""
    return re.sub(r"[\\/]+", "/", value) if isinstance(value, str) else value


def check_sizes(file: Path, schedule: Schedule, recording: Recording) -> None:
    """Holds the sizes of a folder's `schedule.csv` against the traces.

    Raises:
        TraceError: It is of another run.
    """
    run = recording.run
    for what, told, recorded in (
        ("ranks", schedule.ranks, run.ranks if run else recording.ranks),
        ("microbatches", schedule.microbatches, run.microbatches if run else None),
    ):
        if recorded is not None and told != recorded:
            raise TraceError(f"{file} is of another run: it has {told} {what}, the traces beside it {recorded}", _HINT)


def other_than_recorded(schedule: Schedule, recording: Recording) -> str | None:
    """What a run says of itself that differs from the schedule it is held against, as a sentence; None where nothing.

    A schedule that was read from a file has a name of its own, which tells nothing.
    """
    run = recording.run
    if run is None:
        return None
    other_name = schedule.name in names() and schedule.name != run.schedule
    if not other_name and (schedule.ranks, schedule.microbatches) == (run.ranks, run.microbatches):
        return None
    ranks = schedule.ranks != run.ranks
    was, now = (
        f"{printable(name)}, {f'p = {p}, ' if ranks else ''}m = {m}"
        for name, p, m in (
            (run.schedule, run.ranks, run.microbatches),
            (schedule.name, schedule.ranks, schedule.microbatches),
        )
    )
    return f"The run says {was}; it is held against {now}: what differs follows from that first of all."


def check_before(schedule: Schedule, recording: Recording, earlier: Recording) -> None:
    """Whether an earlier run is of the same schedule as a later one, by what it says of itself or by its actions.

    Args:
        schedule: What the later one ran.
        recording: It.
        earlier: The earlier one.

    Raises:
        TraceError: It is not, so that nothing can be said action by action.
    """
    run = earlier.run
    was = None if run is None else (run.schedule, run.ranks, run.microbatches)
    if was is None:
        # Of others' traces there is no other word than their actions.
        codes = np.unique(np.concatenate([step.code[step.is_compute] for step in earlier.steps] or [schedule.code[:0]]))
        common = np.isin(codes, np.concatenate([schedule.code, schedule.partner])).sum()
        if earlier.ranks == schedule.ranks and 2 * common >= codes.size:
            return
    else:
        # A list from a file has whatever name the file had.
        renamed = not {was[0], schedule.name} <= set(names())
        if was[1:] == (schedule.ranks, schedule.microbatches) and (renamed or was[0] == schedule.name):
            return
    before = (
        f"p = {earlier.ranks}, other actions" if was is None else f"{printable(was[0])}, p = {was[1]}, m = {was[2]}"
    )
    now = f"{printable(schedule.name)}, p = {schedule.ranks}, m = {schedule.microbatches}"
    raise TraceError(
        f"{earlier.source} ran another schedule ({before}) than {recording.source} ({now}): two runs are held against "
        "each other action by action",
        "diff each against its own ideal; pipetrace compare sets schedules side by side",
    )


def contradictions(schedule: Schedule, recording: Recording) -> tuple[str, ...]:
    """What was recorded that does not go with the schedule that somebody says was run, in sentences.

    Raises:
        TraceError: Nothing that was recorded is an action of the schedule.
    """
    run, told = recording.run, []
    if run is not None and other_than_recorded(schedule, recording) is not None:
        was, said = (
            f"{printable(name)}, p = {p}, m = {m}"
            for name, p, m in (
                (run.schedule, run.ranks, run.microbatches),
                (schedule.name, schedule.ranks, schedule.microbatches),
            )
        )
        told.append(f"the run says that it was {was}, and not {said}: the record of the run is the surer one")
    elif schedule.ranks != recording.ranks:
        told.append(f"{schedule.name} was named with p = {schedule.ranks}, but {recording.ranks} ranks ran")
    wanted = {whole_backward(code) for code in (*schedule.code.tolist(), *schedule.partner.tolist())}
    found = {
        whole_backward(code)
        for step in recording.steps
        for column in (step.code[step.is_compute], step.partner[step.is_compute])
        for code in np.unique(column).tolist()
        if code != NO_ACTION
    }
    others = sorted(found - wanted)
    if found and len(others) == len(found):
        raise TraceError(
            f"nothing that was recorded is an action of {schedule.name} with p = {schedule.ranks}, "
            f"m = {schedule.microbatches}",
            "`pipetrace read` without --schedule tells what the traces hold",
        )
    if others and not told:
        some = ", ".join(map(code_text, others[:_MOST_NAMED])) + (", ..." if len(others) > _MOST_NAMED else "")
        told.append(
            f"{len(others)} of {len(found)} actions that were recorded are none of {schedule.name} with "
            f"p = {schedule.ranks}, m = {schedule.microbatches} ({some})"
        )
    return tuple(told)


def whole_backward(code: int) -> int:
    """The code of an action of a whole stage, a backward's halves made one: splitting it is a way of running it."""
    whole = whole_stage(code)
    return with_kind(whole, Kind.B) if code_kind(whole) in (Kind.I, Kind.W) else whole


def check_order(file: Path, of: Diff, recording: Recording) -> None:
    """Holds the order in a folder's `schedule.csv` against what was measured.

    Unless ranks may leave the list order, nothing but another list explains another order; and nothing ever explains an
    action that the list does not have.

    Raises:
        TraceError: It is of another run.
    """
    if recording.run is None or "wait" not in recording.run.options:
        return
    reordered = () if waiting_from_dict(recording.run.options).reorders else of.reordered
    for actions, how in ((of.extra, "are not in it"), (reordered, "stand elsewhere in it")):
        if actions:
            some = ", ".join(map(str, actions[:_MOST_NAMED])) + (" ..." if len(actions) > _MOST_NAMED else "")
            raise TraceError(
                f"{file} is not what was run: {len(actions)} actions that the traces beside it recorded {how} ({some})",
                _HINT,
            )
