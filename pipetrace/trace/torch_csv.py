"""Schedules as CSV, in the dialect of torch.distributed.pipelining.

One row a rank, no header; a cell is an action, an empty cell an idle slot::

    0F0,0F1,,,0B0,0B1
    ,1F0,1B0,1F1,1B1

torch's *compute_only* files are read and written as they are, and so are its *compute_comms* files with their sends
and receives; what concerns a whole stage there (UNSHARD, RESHARD, REDUCE_GRAD, and our OPTIM) is dropped, as no
schedule has it, and a note says so. Beyond torch's dialect a cell may carry a pipe (`d1:0F3`), so that bidirectional
schedules can be written too; and idle slots may stand in files with communication, which torch refuses. A schedule in
parts of layers has cells as `4F0@2.dispatch`, in the order in which they are issued, and a cell `|` for a fence::

    0F0@0.attn,0F0@0.dispatch,0F0@0.mlp,0F0@0.combine,|,0B0@0.combine,0B0@0.mlp,0B0@0.dispatch,0B0@0.attn
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pipetrace.action import COMPUTE_KINDS, WHOLE_STAGE_KINDS, Action, Pair, code_layer, code_text, parse
from pipetrace.errors import ActionError, ScheduleError
from pipetrace.placement import Placement
from pipetrace.reading import read_whole
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.shown import printable
from pipetrace.trace.files import replacing

_FENCE = "|"
_HINT = "one row a rank, one action a cell, as in 0F0,0F1,,0B0"


@dataclass(frozen=True, slots=True)
class CsvSchedule:
    """A schedule read from a CSV.

    Args:
        schedule: Valid, named after the file unless another name was given.
        notes: What was dropped or mended, a line each.
    """

    schedule: Schedule
    notes: tuple[str, ...] = ()


def format_csv(schedule: Schedule) -> str:
    """A schedule as CSV, with its sends and receives if it lists any; `parse_csv` reads the same order back."""
    text = [
        f"{_FENCE}," * fence + code_text(code, partner)
        for code, partner, fence in zip(
            schedule.code.tolist(), schedule.partner.tolist(), schedule.fences.tolist(), strict=True
        )
    ]
    first = schedule.first.tolist()
    return "".join(",".join(text[begin:end]) + "\n" for begin, end in itertools.pairwise(first))


def write_csv(schedule: Schedule, path: Path) -> None:
    """Writes a schedule as CSV: as compute_comms where it lists sends and receives, else as compute_only.

    Raises:
        OutputError: The file cannot be written.
    """
    with replacing(path) as file:
        file.write(format_csv(schedule).encode())


def not_for_torch(schedule: Schedule) -> str:
    """Why torch's own runtime cannot read a schedule's CSV; empty where it can."""
    if schedule.placement.pipes > 1:
        return f"torch has no schedules of {schedule.placement.pipes} pipes, and does not read cells as d1:0F3"
    if (code_layer(schedule.code) >= 0).any():
        return "torch has no parts of layers, and does not read cells as 0F0@0.attn"
    return ""


def read_csv(path: Path, name: str | None = None) -> CsvSchedule:
    """Reads a schedule that torch, or `write_csv`, or a person wrote.

    Args:
        path: The file, UTF-8.
        name: Name of the schedule; the file's when None.

    Raises:
        ScheduleError: The file cannot be read, a cell is no action, or the schedule is not valid; with file, and line
            and column (counted in cells, from 1) where there is one.
        DeadlockError: The ranks' lists wait for each other.
    """
    try:
        data = read_whole(path)
    except OSError as error:
        raise ScheduleError(f"{path}: {error.strerror or error}", _HINT) from None
    except ValueError as error:
        raise ScheduleError(f"{str(path)!r}: {error}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, before[before.rfind(b"\n") + 1 :].count(b",") + 1
        raise ScheduleError(
            f"{path}: line {line}, column {column}: not UTF-8 (byte {error.start})",
            "save the file as plain text in UTF-8",
        ) from None
    return parse_csv(text, printable(path.stem) if name is None else name, source=str(path))


def parse_csv(text: str, name: str, source: str = "CSV") -> CsvSchedule:
    """Reads a schedule from the text of a CSV.

    The placement is read off where the actions stand, and named where it is a loop, V or mirrored one; the number of
    microbatches is the highest one plus 1.

    Args:
        text: The CSV.
        name: Name of the schedule.
        source: What errors call the text, usually the file.

    Raises:
        ScheduleError, DeadlockError: As `read_csv`.
    """
    notes = []
    if text.startswith("\ufeff"):
        text = text[1:]
        notes.append("a byte-order mark at the start was skipped")
    # Not splitlines(): a form feed is no line end here, but junk to be named.
    rows = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    if rows == [""]:
        raise ScheduleError(f"{source} is empty", _HINT)

    cells = _Cells(source)
    orders = []
    for line, row in enumerate(rows, start=1):
        order, computes = RankOrder(), False
        for column, text_of in enumerate(row.split(","), start=1):
            cell = text_of.strip(" \t")
            if cell == _FENCE:
                cells.fence(line, column)
                order.fence()
            elif (item := cells.read(cell, line, column)) is not None:
                order.append(item)
                computes |= isinstance(item, Pair) or item.kind in COMPUTE_KINDS
        if not computes:
            raise ScheduleError(f"{source}: line {line}: rank {line - 1} has no compute action", _HINT)
        orders.append(order)
    cells.check_fences()
    if cells.dropped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(cells.dropped.items()))
        notes.append(f"what concerns whole stages was dropped, as a schedule has none of it: {kinds}")

    try:
        placement = cells.placement(len(orders))
        schedule = Schedule.from_orders(name, placement, cells.microbatches, orders)
        return CsvSchedule(schedule.validate(), tuple(notes))
    except ScheduleError as error:
        raise type(error)(f"{source}: {error.message}", error.hint) from None


class _Cells:
    """Reads cell by cell and remembers where everything stood."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.dropped: Counter[str] = Counter()
        self.microbatches = 0
        self._has_parts = False
        self._fence: tuple[int, int] | None = None
        self._place: dict[int, tuple[int, int]] = {}
        self._rank: dict[tuple[int, int], int] = {}

    def read(self, cell: str, line: int, column: int) -> Action | Pair | None:
        """The action of a cell; None for an idle slot and for what concerns a whole stage."""
        if not cell:
            return None
        where = f"{self.source}: line {line}, column {column}"
        try:
            item = parse(cell)
        except ActionError as error:
            raise ScheduleError(f"{where}: {error.message}", error.hint) from None
        halves = (item,) if isinstance(item, Action) else (item.forward, item.backward)
        for action in halves:
            self._has_parts |= action.part is not None
            earlier = self._place.setdefault(action.code, (line, column))
            # A stage may be unsharded and resharded many times in a step.
            if earlier != (line, column) and action.kind not in WHOLE_STAGE_KINDS:
                raise ScheduleError(
                    f"{where}: {action} stands already in line {earlier[0]}, column {earlier[1]}",
                    "every action stands once",
                )
            rank = self._rank.setdefault((action.pipe, action.stage), line - 1)
            if rank != line - 1:
                of = f" of pipe {action.pipe}" if action.pipe else ""
                raise ScheduleError(
                    f"{where}: {action} puts stage {action.stage}{of} on rank {line - 1}, but line {rank + 1} "
                    f"has it on rank {rank}",
                    "a stage lives on one rank; a second pipe is written with the prefix d1:",
                )
            self.microbatches = max(self.microbatches, (action.microbatch or 0) + 1)
        if isinstance(item, Action) and item.kind in WHOLE_STAGE_KINDS:
            self.dropped[item.kind.name] += 1
            return None
        return item

    def fence(self, line: int, column: int) -> None:
        """Notes a fence."""
        self._fence = self._fence or (line, column)

    def check_fences(self) -> None:
        """Refuses fences between whole stages, which run one after the other anyway."""
        if self._fence is not None and not self._has_parts:
            line, column = self._fence
            raise ScheduleError(
                f"{self.source}: line {line}, column {column}: a fence stands between whole stages",
                "fences are for schedules in parts of layers, as 0F0@0.attn; leave it out",
            )

    def placement(self, ranks: int) -> Placement:
        """Where the stages stood."""
        pipes = max(pipe for pipe, _ in self._rank) + 1
        stages = max(stage for _, stage in self._rank) + 1
        if len(self._rank) < pipes * stages:
            pipe, stage = next((k, s) for k in range(pipes) for s in range(stages) if (k, s) not in self._rank)
            of = f" of pipe {pipe}" if pipes > 1 else ""
            raise ScheduleError(
                f"no rank has an action of stage {stage}{of}, but the highest stage is {stages - 1}",
                "stages are numbered from 0 without a gap, the same in every pipe",
            )
        table = tuple(tuple(self._rank[pipe, stage] for stage in range(stages)) for pipe in range(pipes))
        return Placement.of_table(ranks, table)
