"""Two lanes on one rank: what waits for what, and what happens when one of them breaks."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import pipetrace
from pipetrace.action import ALL_TO_ALL_PARTS, Action, Kind, Part, is_all_to_all, parse_action
from pipetrace.execute.board import Board, Phase
from pipetrace.execute.devices.threads import ThreadDevice
from pipetrace.execute.inject import NO_FAULTS, RankFaults
from pipetrace.execute.lanes import LanesStep
from pipetrace.execute.program import compile_rank
from pipetrace.execute.stages.base import PartStage
from pipetrace.execute.step import Seat, Step
from pipetrace.execute.streams import StreamsStep
from pipetrace.lanes import fenced_pairs
from pipetrace.links import NO_ROW
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.schedule import Schedule
from tests.execute.in_process import Labels, Loopback


class Told:
    """A stage that takes a little while for each part, and remembers when."""

    def __init__(self, number: int, last: bool, pause: Callable[[], float]) -> None:
        self._number, self._last, self._pause = number, last, pause
        self.when: dict[str, tuple[int, int, str]] = {}
        self.fault: Callable[[Action], None] = lambda _action: None

    def begin_step(self) -> None:
        self.when.clear()

    def run_part(
        self,
        kind: Kind,
        layer: int,
        part: Part,
        microbatch: int,
        value: torch.Tensor | None,  # noqa: ARG002
    ) -> torch.Tensor | None:
        action = Action(kind, self._number, microbatch, 0, layer, part)
        begun = time.perf_counter_ns()
        time.sleep(self._pause())
        self.fault(action)
        self.when[str(action)] = begun, time.perf_counter_ns(), threading.current_thread().name
        gives = (kind is Kind.F and part is Part.COMBINE and not self._last) or (
            kind in (Kind.B, Kind.I) and part is Part.ATTN and self._number > 0
        )
        return torch.zeros(1) if gives else None

    def forward(self, microbatch: int, value: torch.Tensor | None) -> torch.Tensor | None:
        raise NotImplementedError

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        raise NotImplementedError

    def backward_input(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        raise NotImplementedError

    def backward_weight(self, microbatch: int) -> None:
        raise NotImplementedError

    def gradients(self) -> list[torch.Tensor]:
        return []

    def expert_gradients(self) -> list[torch.Tensor]:
        return []


def made(
    schedule: Schedule,
    pause: Callable[[], float] = lambda: 0.0,
    device: ThreadDevice | None = None,
    faults: RankFaults = NO_FAULTS,
) -> tuple[Step, dict[tuple[int, int], Told], Labels, Board]:
    """Rank 0 with its stages; its lanes are threads, or streams of a device."""
    last = schedule.stages - 1
    stages = {held: Told(held[1], held[1] == last, pause) for held in schedule.placement.held_by(0)}
    assert all(isinstance(stage, PartStage) for stage in stages.values())
    labels, board = Labels(), Board(schedule.ranks)
    line = board.line(0)
    program, buffer = compile_rank(schedule, 0), torch.zeros(1)
    seat = Seat(program, dict(stages), Loopback(), lambda _receive: buffer, line, labels, faults=faults)
    step: Step = LanesStep(seat, schedule=schedule, beside=line.beside())
    if device is not None:
        step = StreamsStep(seat, schedule=schedule, device=device, beside=line.beside())
    return step, stages, labels, board


@pytest.fixture(params=["threads", "streams"])
def device(request: pytest.FixtureRequest) -> Iterator[ThreadDevice | None]:
    if request.param == "threads":
        yield None
        return
    made = ThreadDevice()
    yield made
    made.close()


@pytest.mark.parametrize("order", MoeOrder)
def test_every_part_runs_on_its_lane_when_what_it_takes_is_there(order: MoeOrder, device: ThreadDevice | None) -> None:
    schedule = expand_moe(pipetrace.build("dualpipev", 1, 4), Overlap(order, 2))
    chance = random.Random(7)
    step, stages, _, _ = made(schedule, lambda: chance.random() * 0.002, device)
    step.run()
    when = {text: times for stage in stages.values() for text, times in stage.when.items()}
    assert len(when) == len(schedule)
    links = schedule.links
    texts = [str(Action.from_code(code)) for code in schedule.code.tolist()]
    for text, (_, _, thread) in when.items():
        assert (thread == ("all-to-all" if device is None else "stream 1")) == (
            parse_action(text).part in ALL_TO_ALL_PARTS
        )
    travels = is_all_to_all(schedule.code).tolist()
    gathers = set(fenced_pairs(schedule).tolist())
    for row, text in enumerate(texts):
        needed = [int(column[row]) for column in (links.inputs, links.local, links.gradients)]
        needed += [other for other in range(row) if travels[other] == travels[row]]
        if schedule.fences[: row + 1].any():
            fence = max(other for other in range(row + 1) if schedule.fences[other])
            needed += range(fence)
            if fence in gathers:
                needed += [int(column[fence + 1]) for column in (links.inputs, links.gradients)]
        for other in needed:
            if other != NO_ROW:
                assert when[texts[other]][1] <= when[text][0], f"{text} before {texts[other]} had ended"


def test_faults_of_compute_leave_all_to_alls_alone(
    device: ThreadDevice | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[int] = []
    monkeypatch.setattr("pipetrace.execute.step.sleep_until", slept.append)
    schedule = expand_moe(pipetrace.build("1f1b", 1, 2), Overlap())
    made(schedule, device=device, faults=RankFaults(stretch=2.0, gap=1))[0].run()
    computes = len(schedule) - int(is_all_to_all(schedule.code).sum())
    assert len(slept) == 2 * computes  # the pause, and what it takes longer


def test_compute_goes_on_beside_an_all_to_all_and_says_when_it_waits_for_one() -> None:
    schedule = expand_moe(pipetrace.build("dualpipev", 1, 4), Overlap(MoeOrder.ALIGNED))
    step, stages, labels, _ = made(schedule)
    both = threading.Barrier(2, timeout=60)

    def begun(action: Action) -> None:
        if str(action) in ("1F1@0.dispatch", "0B0@0.mlp"):
            both.wait()  # for the other to have begun: one after the other they would never end
        give_up = time.monotonic() + 60
        while str(action) == "0F0@0.dispatch" and f"WAIT:{action}" not in [text for _, text in labels.seen]:
            assert time.monotonic() < give_up
            time.sleep(0.001)

    for stage in stages.values():
        stage.fault = begun
    for _ in range(2):
        labels.seen.clear()
        step.run()
        texts = [text for _, text in labels.seen]
        assert {text[3:] for text in texts if text.startswith("PP:")} == {
            str(Action.from_code(code)) for code in schedule.code.tolist()
        }
        waits = [parse_action(text[5:]) for text in texts if text.startswith("WAIT:")]
        assert waits
        assert all(action.part in ALL_TO_ALL_PARTS for action in waits)
    assert [op.row for op in step.ran.ops if op.halves[0].action.part not in ALL_TO_ALL_PARTS] == [
        row for row in range(len(schedule)) if not is_all_to_all(schedule.code)[row]
    ]


@pytest.mark.parametrize("part", [Part.MLP, Part.COMBINE])
def test_what_breaks_on_either_lane_ends_the_step(part: Part, device: ThreadDevice | None) -> None:
    schedule = expand_moe(pipetrace.build("dualpipev", 1, 4), Overlap(MoeOrder.ALIGNED))
    step, stages, _, board = made(schedule, device=device)

    def fault(action: Action) -> None:
        if (action.kind, action.stage, action.part, action.microbatch) == (Kind.F, 1, part, 1):
            raise ConnectionError("gone")

    stages[0, 1].fault = fault
    with pytest.raises(ConnectionError, match="gone"):
        step.run()
    # The lane that broke is the one of which the board tells.
    assert board.describe(0, schedule) == f"was in 1F1@0.{part.name.lower()} of step 0"


def test_the_board_tells_of_the_lane_that_broke_while_the_other_was_busy() -> None:
    schedule = expand_moe(pipetrace.build("dualpipev", 1, 4), Overlap(MoeOrder.ALIGNED))
    step, stages, _, board = made(schedule)
    computing = threading.Event()

    def breaks(action: Action) -> None:
        if (action.kind, action.part, action.microbatch) == (Kind.F, Part.COMBINE, 1):
            assert computing.wait(60)
            raise ConnectionError("gone")

    def computes(action: Action) -> None:
        if (action.kind, action.part, action.microbatch) == (Kind.B, Part.ATTN, 0):
            computing.set()
            give_up = time.monotonic() + 60
            assert isinstance(step, LanesStep)
            while step._error is None and time.monotonic() < give_up:
                time.sleep(0.001)

    stages[0, 1].fault, stages[0, 0].fault = breaks, computes
    with pytest.raises(ConnectionError, match="gone"):
        step.run()
    assert board.describe(0, schedule) == "was in 1F1@0.combine of step 0"


def test_an_idle_lane_shows_what_the_other_does() -> None:
    board = Board(2)
    line = board.line(1)
    beside, code = line.beside(), parse_action("1F0@0.dispatch").code
    schedule = expand_moe(pipetrace.build("1f1b", 2, 2))
    line.at(Phase.COMPUTING, parse_action("1F0@0.attn").code)
    ticks = board.ticks
    beside.at(Phase.COMPUTING, code)
    assert board.describe(1, schedule) == "was in 1F0@0.attn of step 0"
    assert board.ticks > ticks
    beside.show()
    with beside.exchanging():
        assert board.describe(1, schedule) == "waited for the all-to-all in 1F0@0.dispatch of step 0"
    assert board.describe(1, schedule) == "was in 1F0@0.dispatch of step 0"
    beside.hide()
    line.at(Phase.COMPUTING, parse_action("1F0@0.mlp").code)
    beside.at(Phase.COMPUTING, code)
    assert board.describe(1, schedule) == "was in 1F0@0.mlp of step 0"
