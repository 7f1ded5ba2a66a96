"""Steps of which a rank's trace is missing: what others waited for from it is nobody's fault."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.costs import Costs, StageCosts
from pipetrace.diff import Analysis, diff
from pipetrace.diff.document import document
from pipetrace.diff.fault import FaultKind
from pipetrace.diff.threshold import parse_threshold
from pipetrace.diff.waits import Awaits
from pipetrace.errors import TraceError
from pipetrace.report.verdict import verdict
from pipetrace.schedule import Schedule
from pipetrace.schedules import build
from pipetrace.simulate import simulate
from tests.diff.cases import Step

MS = 1_000_000
COSTS = Costs(StageCosts(10 * MS, 12 * MS, 8 * MS), p2p=200_000)
SIZES = [("gpipe", 3, 6), ("1f1b", 4, 8), ("zb-h1", 4, 8), ("interleaved", 3, 6), ("zbv", 3, 6), ("chimera", 4, 8),
         ("dualpipev", 2, 8)]  # fmt: skip
of_noise = settings(max_examples=25, deadline=None, derandomize=True)
schedules = st.sampled_from(SIZES).map(lambda size: build(*size))


def without(step: Step, *ranks: int) -> Analysis:
    schedule, timeline = step.work.schedule, step.timeline()
    measured = timeline.where(~np.isin(timeline.rank, ranks))
    return Analysis(diff(simulate(schedule, COSTS), measured), schedule, COSTS, steps=[measured])


@of_noise
@given(schedules, st.integers(0, 2**32 - 1), st.data())
def test_waiting_for_a_rank_that_was_not_recorded_is_no_fault(
    schedule: Schedule, seed: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    of = without(Step.noisy(schedule, COSTS, seed, 0.02, 10_000), rank)
    assert of.found.faults == ()
    assert of.absent == (rank,)
    fall = of.waterfall
    assert fall.base + sum(bar.size for bar in fall.bars) + fall.residual == of.of.measured.makespan
    assert fall.residual == 0
    assert fall.bars[-1].name == f"waits for rank {rank}, not recorded"
    assert f"compute of rank {rank}" not in [bar.name for bar in fall.bars]
    _, measured = of.waits
    for other in measured.busy:
        idle = measured.of(other)
        assert measured.busy[other] + sum(idle.values()) == measured.makespan
        # Noise alone: some ten thousands of ns for each of at most some hundred actions.
        assert idle[Awaits.HOST] < 4 * MS
    assert of.awaited_unrecorded.keys() <= measured.busy.keys()
    assert {source for (_, awaits, source) in measured.idle if awaits is Awaits.UNRECORDED} <= {rank}
    first, *_ = verdict(of)
    assert first.startswith(f"Rank {rank} was not recorded: what others waited for from it")
    assert first.endswith("and what the step would take without a cause, imbalance and overhead cannot be told.")
    table = document(of)
    assert table["not_recorded"] == [rank]
    assert table["references"] is None
    assert table["what_if"] == []
    assert sum(table["critical_path"]["measured"]["time_ns"].values()) == of.of.measured.makespan
    if not schedule.partner.any():
        assert of.paths.measured_time.get("host", 0) < 4 * MS


@of_noise
@given(schedules.filter(lambda s: s.ranks > 2), st.integers(0, 2**32 - 1), st.data())
def test_a_slow_rank_among_those_that_were_recorded_is_still_told(
    schedule: Schedule, seed: int, data: st.DataObject
) -> None:
    slow, gone = data.draw(st.permutations(range(schedule.ranks)))[:2]
    clean = Step.noisy(schedule, COSTS, seed, 0.02, 10_000)
    of = without(clean.slower(clean.work.rank == slow, 1.5), gone)
    fault = of.found.faults[0]
    assert fault.kind is FaultKind.COMPUTE
    assert f"rank {slow}" in fault.names
    assert fault.amount - 1 == pytest.approx(0.5, rel=0.1)
    sentence = verdict(of)[1]
    assert "as long as the costs say" in sentence
    assert "of the step" not in sentence
    assert document(of)["faults"][0]["effect_ns"] is None


def test_it_is_not_blamed_on_the_host_what_a_whole_step_would_be() -> None:
    """The same pause before the same actions: a host's where all ranks are there, nobody's where their maker is not."""
    schedule = build("1f1b", 4, 8)
    clean = Step.noisy(schedule, COSTS, 1, 0.005, 5_000)
    late = np.where((clean.work.rank == 0) & (clean.order.previous < len(clean.work)), 3 * MS, 0)
    step = Step(clean.work, clean.inputs.but(gap=clean.inputs.gap + late), clean.order)
    whole = without(step)
    assert whole.absent == ()
    assert whole.found.faults[0].names == ("rank 0",)
    assert whole.found.faults[0].kind is FaultKind.GAP
    # Its forwards need nobody's: those are seen to pause still.
    assert without(step, 1).found.faults[0].amount == pytest.approx(3 * MS, rel=0.1)
    two = without(step, 1, 3)
    assert verdict(two)[0].startswith("Ranks 1, 3 were not recorded: what others waited for from them (rank ")
    assert two.waterfall.bars[-1].name == "waits for ranks 1, 3, not recorded"


def test_what_needs_the_rank_cannot_be_a_threshold() -> None:
    of = without(Step.noisy(build("1f1b", 3, 4), COSTS, 1, 0.005, 5_000), 1)
    for text in ("overhead:+5%", "imbalance:+5%"):
        with pytest.raises(TraceError, match="without rank 1 neither overhead nor imbalance can be told"):
            parse_threshold(text).crossed(of)
    assert parse_threshold("makespan:+500%").crossed(of) is None
