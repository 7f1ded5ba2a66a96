from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import pipetrace
from pipetrace.action import Action, Kind
from pipetrace.costs import Costs, StageCosts
from pipetrace.errors import RunError
from pipetrace.execute import RunConfig, run
from pipetrace.execute.inject import Injections, RankFaults, parse_injections
from pipetrace.execute.program import preflight
from pipetrace.trace.run_folder import read_run_info
from pipetrace.trace.torch_profiler import read_recording

MS = 1_000_000


def test_faults_are_read_as_people_write_them() -> None:
    texts = ["rank2:compute*1.5", "link1-2:+5ms", "rank0:gap+250us", "rank2:gap+0.5ms", "no-tags"]
    faults = parse_injections(texts)
    assert faults == Injections({2: 1.5}, {0: 250_000, 2: 500_000}, {(1, 2): 5 * MS}, False, tuple(texts))
    assert faults.on(2) == RankFaults(1.5, 500_000)
    assert faults.on(1) == RankFaults()
    assert (faults.into(2), faults.into(1)) == ({1: 5 * MS}, {})
    assert faults.longest == 5 * MS + 500_000
    assert parse_injections([]) == Injections()


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["rank2"], "cannot read the fault 'rank2'"),
        ([""], "cannot read the fault ''"),
        (["rank02:compute*2"], "cannot read"),
        (["rank2:compute*x"], "cannot read"),
        (["rank2:compute*1.5 "], "cannot read"),
        (["rank2:compute*0.5"], "a factor of 0.5"),
        (["rank2:compute*1001"], "a factor of 1001"),
        (["rank2:gap+2"], "cannot read"),
        (["rank2:gap+3000s"], "is too long"),
        (["link1:+5ms"], "cannot read"),
        (["link1-1:+5ms"], "no link to itself"),
        (["link1-2:5ms"], "cannot read"),
        (["rank1:gap+1ms", "rank1:gap+2ms"], "given twice"),
        (["no-tags", "no-tags"], "given twice"),
    ],
)
def test_what_is_no_fault_is_refused_with_a_hint(texts: list[str], says: str) -> None:
    with pytest.raises(RunError) as caught:
        parse_injections(texts)
    assert says in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rank4:compute*2", "names rank 4, but there are 4 ranks"),
        ("rank9:gap+1ms", "names rank 9"),
        ("link3-4:+1ms", "names rank 4"),
        ("link0-2:+1ms", "sends nothing from rank 0 to 2"),
    ],
)
def test_a_fault_that_a_schedule_cannot_show_is_refused(text: str, says: str) -> None:
    schedule = pipetrace.build("1f1b", 4, 4)
    parse_injections(["rank3:compute*2", "link1-2:+1ms", "link2-1:+1ms"]).check(schedule)
    with pytest.raises(RunError) as caught:
        parse_injections([text]).check(schedule)
    assert says in caught.value.message


def test_one_rank_has_no_links() -> None:
    with pytest.raises(RunError, match="there are 1 ranks"):
        parse_injections(["link0-1:+1ms"]).check(pipetrace.build("1f1b", 1, 1))


def test_a_run_shows_them_where_they_were_put(tmp_path: Path) -> None:
    texts = ("rank1:compute*3", "rank0:gap+4ms", "link1-0:+9ms")
    costs = Costs(StageCosts(2 * MS, 2 * MS, 2 * MS))
    config = RunConfig(costs=costs, steps=2, warmup=0, check=True, inject=parse_injections(texts))
    result = run(pipetrace.build("gpipe", 2, 3), config, tmp_path)
    assert result.check is not None
    assert result.check.passed
    assert read_run_info(tmp_path).options["inject"] == list(texts)
    recording = read_recording([tmp_path])
    assert recording.run is not None
    assert recording.run.options["inject"] == list(texts)
    for step in recording.steps:
        compute = step.where(step.is_compute)
        assert ((compute.end - compute.start)[compute.rank == 1] >= 6 * MS).all()
        first = compute.where(compute.rank == 0)
        assert (first.start[1:] - first.end[:-1] >= 4 * MS).all()
        for microbatch in range(3):
            made, taken = (step.find(Action(Kind.B, stage, microbatch)) for stage in (1, 0))
            assert made is not None
            assert taken is not None
            assert taken.start - made.end >= (9 + 4) * MS
    # Neither the pause nor the late data counts as compute, and what travels the other way is not late.
    durations = [step.where(step.is_compute & (step.rank == 0)) for step in recording.steps]
    assert min(int((of.end - of.start)[:3].min()) for of in durations) < 5 * MS


def test_values_that_meet_the_wrong_receive_are_refused_before_and_found_after(tmp_path: Path) -> None:
    schedule = pipetrace.build("dualpipe", 6, 12)
    config = RunConfig(
        costs=Costs(StageCosts(0, 0, 0)), steps=1, warmup=0, check=True, inject=parse_injections(["no-tags"])
    )
    with pytest.raises(RunError, match=r"without tags rank . would take (d1:)?.SEND_.\d* of rank . for"):
        run(schedule, config, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    result = run(schedule, replace(config, preflight=False), tmp_path / "run")
    assert result.check is not None
    assert not result.check.passed
    assert "wrong message for" in result.check.text
    # Where each pair of ranks keeps one order, tags are not needed.
    preflight(pipetrace.build("zb-h1", 4, 8), tags=False)
