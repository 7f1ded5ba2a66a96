from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from pipetrace.candidates import candidate_of, candidates_of, literal, of_schedule, of_spec, swept
from pipetrace.compare import Candidate, Comparison, Figures, Setting, compare
from pipetrace.costs import Costs, Link, Network, StageCosts
from pipetrace.costs_io import parse_costs
from pipetrace.errors import CostError, ScheduleError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.parts_io import parse_parts
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.passes.steady_pair import with_ratio
from pipetrace.placement import Placement
from pipetrace.schedule import RankOrder, Schedule
from pipetrace.schedules import ScheduleSpec, build, names
from pipetrace.simulate import simulate
from pipetrace.waiting import Wait

MS = 1_000_000


def setting(p: int = 8, m: int = 32, costs: Costs | None = None, **options: object) -> Setting:
    return Setting(p, m, costs or Costs(), options)


def figures(comparison: Comparison) -> Mapping[str, Figures]:
    return {row.candidate.label: row.figures for row in comparison.rows if row.figures is not None}


def test_the_same_model_takes_the_same_work() -> None:
    of = figures(compare(candidates_of([], everything=True), [setting()]))
    assert list(of) == names()
    for one in of.values():
        # Of two pipes each rank holds two full-size stages, but only half the microbatches go through each.
        assert sum(one.bubbles.busy) == 8 * 32 * 3 * MS


@pytest.mark.parametrize(
    ("name", "makespan", "peak", "parameters", "transfers"),
    [
        ("1f1b", 117, 8, 1, 2 * 32 * 7),
        ("interleaved", 106.5, 11.5, 1, 2 * 32 * 15),
        ("interleaved:v=4", 101.25, 9.75, 1, 2 * 32 * 31),
        ("zbv", 99.5, 8, 1, 2 * 32 * 14),
        ("dualpipe", 102, 9, 2, 2 * 32 * 7),
        ("dualpipev", 103, 8.5, 1, 2 * 32 * 14),
        ("chimera:pipes=4", 126, 8, 4, 2 * 32 * 7),
    ],
)
def test_figures(name: str, makespan: float, peak: float, parameters: float, transfers: int) -> None:
    (one,) = figures(compare([candidate_of(name)], [setting()])).values()
    if not name.startswith("chimera:"):
        assert one.makespan == makespan * MS
    assert (one.peak_freed_at_weight_grad, one.parameters, one.transfers) == (peak, parameters, transfers)


def test_per_chunk() -> None:
    of = figures(compare([candidate_of("interleaved"), candidate_of("1f1b")], [setting()], per_chunk=True))
    assert (of["interleaved"].makespan, of["1f1b"].makespan) == (213 * MS, 117 * MS)


def test_both_bubbles() -> None:
    (zbv,) = figures(compare([candidate_of("zbv")], [setting(4, 8)])).values()
    assert zbv.in_span_idle == 0
    assert zbv.global_idle == pytest.approx((51 - 48) / 51)


def test_options_go_to_those_that_take_them() -> None:
    comparison = compare([candidate_of("1f1b"), candidate_of("interleaved"), candidate_of("interleaved:v=3")],
                         [setting(4, 8, chunks=4)])  # fmt: skip
    assert {label: one.schedule.stages for label, one in figures(comparison).items()} == {
        "1f1b": 4, "interleaved": 16, "interleaved v=3": 12,
    }  # fmt: skip
    with pytest.raises(ScheduleError, match="none of 1f1b takes the option 'chunks'"):
        compare([candidate_of("1f1b")], [setting(chunks=2)])


def test_what_cannot_be_built_is_a_row() -> None:
    comparison = compare([candidate_of("1f1b"), candidate_of("dualpipe")], [setting(8, 8)])
    built, refused = comparison.rows
    assert built.reason == ""
    assert refused.figures is None
    assert "-m 16 or more" in refused.reason
    with pytest.raises(ScheduleError, match="none can be built: dualpipe on 8 ranks"):
        compare([candidate_of("dualpipe"), candidate_of("dualpipev")], [setting(8, 8)])


def test_a_builder_that_looks_at_costs_gets_those_of_its_stages() -> None:
    seen: list[Costs] = []

    def own(ranks: int, microbatches: int, *, costs: Costs) -> Schedule:
        seen.append(costs)
        return build("interleaved", ranks, microbatches)

    spec = ScheduleSpec("own", own, "loop", "-", "-", ("costs",))
    (row,) = compare([of_spec(spec, {}, "own")], [setting(2, 4, parse_costs("F=10,I=20,W=30"))]).rows
    assert row.figures is not None
    assert seen[-1] == row.figures.costs == parse_costs("F=5,I=10,W=15")


def test_a_schedule_as_it_stands() -> None:
    candidate = of_schedule(build("1f1b", 2, 4), "mine")
    comparison = compare([candidate], [setting(2, 4), setting(2, 5)])
    assert [row.reason for row in comparison.rows] == ["", "it is for -p 2 -m 4"]


def test_stages_that_do_not_divide() -> None:
    order = RankOrder()
    for kind in (order.F, order.B):
        for stage in range(3) if kind == order.F else reversed(range(3)):
            kind(stage, 0)
    three = Schedule.from_orders("three", Placement.loop(1, 3), 1, [order])
    (one,) = figures(compare([of_schedule(three, "three")], [setting(1, 1)])).values()
    assert one.makespan == pytest.approx(3 * MS, abs=6)
    assert one.peak_freed_at_weight_grad == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("m=8,16", [(8, 8, {}), (8, 16, {})]),
        ("p=2, 4", [(2, 32, {}), (4, 32, {})]),
        ("v=2,3", [(8, 32, {"chunks": 2}), (8, 32, {"chunks": 3})]),
        ("group=8", [(8, 32, {"group": 8})]),
    ],
)
def test_sweeps(text: str, found: list[tuple[int, int, dict[str, object]]]) -> None:
    variable, settings = swept(text, setting(), "ms")
    assert variable == text.split("=", maxsplit=1)[0]
    assert [(one.ranks, one.microbatches, dict(one.options)) for one in settings] == found


def test_a_sweep_of_transfers() -> None:
    _, settings = swept("p2p=0,0.5", setting(), "us")
    assert [(one.costs.p2p, one.value, one.label) for one in settings] == [(0, 0, "0 µs"), (500, 0.5, "0.5 µs")]
    comparison = compare([candidate_of("1f1b")], settings, variable="p2p")
    first, last = (comparison.at(one)[0].figures for one in settings)
    assert first is not None
    assert last is not None
    assert first.makespan < last.makespan


def test_a_sweep_of_nodes() -> None:
    """With all ranks on one node nothing crosses; with one a node everything does."""
    base = setting(8, 16, Costs(network=Network(across=Link(MS // 2))))
    _, settings = swept("ranks-per-node=1,4,8", base, "ms")
    comparison = compare([candidate_of("1f1b")], settings, variable="ranks-per-node")
    one, four, eight = (comparison.at(at)[0].figures for at in settings)
    assert one is not None
    assert four is not None
    assert eight is not None
    assert one.makespan > four.makespan > eight.makespan
    free = compare([candidate_of("1f1b")], [setting(8, 16)]).rows[0].figures
    assert free is not None
    assert eight.makespan == free.makespan
    _, times = swept("p2p-across=0,0.5", settings[1], "ms")
    none, half = (compare([candidate_of("1f1b")], [at]).rows[0].figures for at in times)
    assert none is not None
    assert half is not None
    assert (none.makespan, half.makespan) == (eight.makespan, four.makespan)
    for text in ("ranks-per-node=2", "p2p-across=1"):
        with pytest.raises(CostError, match="node"):
            swept(text, setting(), "ms")


def test_a_sweep_of_waits() -> None:
    variable, settings = swept("wait=inline,prefetch,dataflow", setting(4, 8, Costs(p2p=MS // 5)), "ms")
    comparison = compare([candidate_of("1f1b")], settings, variable=variable)
    makespans = {at.label: comparison.at(at)[0].figures.makespan for at in settings}  # type: ignore[union-attr]
    assert makespans["inline"] > makespans["prefetch"]
    assert [at.waiting.policy for at in settings] == list(Wait)
    with pytest.raises(ScheduleError, match="cannot sweep wait"):
        swept("wait=blocking", setting(), "ms")


@pytest.mark.parametrize("text", ["m", "m=", "m=x", "m=1.5", "k=1,2", "=3", "m=-1"])
def test_sweeps_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ScheduleError, match="cannot sweep"):
        swept(text, setting(), "ms")
    with pytest.raises(CostError):
        swept("p2p=x", setting(), "ms")


@pytest.mark.parametrize("text", ["nowhere", "interleaved:v", "interleaved:v 3", "zbv:v=2"])
def test_candidates_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ScheduleError):
        candidate_of(text)


def test_progress_is_told() -> None:
    seen = []

    def each(work: object) -> Iterator[tuple[Setting, Candidate]]:
        for one in work:  # type: ignore[attr-defined]
            seen.append(one[1].label)
            yield one

    compare([candidate_of("1f1b"), candidate_of("zbv")], [setting(2, 2), setting(2, 4)], each=each)
    assert seen == ["1f1b", "zbv"] * 2


def test_costs_of_stages_that_one_of_them_does_not_have() -> None:
    eight = Costs(stages={7: StageCosts(5 * MS, MS, MS)})
    candidates = [candidate_of("1f1b"), candidate_of("zbv")]
    one, two = compare(candidates, [setting(4, 8, eight)], per_chunk=True).rows
    assert one.reason == "the costs name stage 7, but 1f1b has 4 stages, from 0"
    assert two.figures is not None
    with pytest.raises(CostError, match="none can be built: the costs name stage 7"):
        compare(candidates, [setting(4, 8, eight)])


@pytest.mark.parametrize(
    "text", ["m=" + "9" * 5000, "m=\u0661", "m=1_000", "p2p=nan", "p2p=1e999999999", "m=-1", "m=" + "8," * 9 + "x"]
)
def test_values_that_cannot_be_swept(text: str) -> None:
    with pytest.raises((ScheduleError, CostError)) as caught:
        swept(text, setting(), "ms")
    assert len(str(caught.value)) < 250


def test_a_value_is_one_value() -> None:
    assert literal("4\nx = 5") == "4\nx = 5"
    assert literal("[" * 5000) == "[" * 5000
    assert literal("9" * 5000) == "9" * 5000


ORDERS = [candidate_of(f"dualpipev:moe-order={order}") for order in MoeOrder]


def test_moe_layers_in_every_order() -> None:
    """mlp of 2 beside attention of 1: dualpipe hides what the others leave exposed."""
    layer = parse_parts("mlp=2,a2a=1.5")
    rows = compare(ORDERS, [Setting(4, 16, Costs(layer=layer), {}, Overlap(layers=2))]).rows
    figures = {row.candidate.label.split()[-1]: row.figures for row in rows}
    assert list(figures) == list(MoeOrder)
    times = {}
    for order, of in figures.items():
        assert of is not None
        # Two layers on a rank are one on each of its two stages.
        assert of.schedule.chain.layers.tolist() == [1] * 8
        parts = expand_moe(build("dualpipev", 4, 16), Overlap(MoeOrder(order)), Costs(layer=layer))
        assert of.makespan == simulate(parts, Costs(layer=layer)).makespan
        times[order] = (of.makespan, of.exposed)
    assert times["dualpipe"] < times["megatron"] <= times["aligned"] < times["serial"]
    serial = figures["serial"]
    assert serial is not None
    assert serial.fraction_exposed == 1.0


def test_layers_that_cannot_be_cut() -> None:
    setting = Setting(2, 8, Costs(), {}, Overlap(layers=3))
    rows = compare([candidate_of("dualpipev"), candidate_of("1f1b")], [setting]).rows
    assert rows[0].error is not None
    assert rows[0].error.message == "3 layers on a rank cannot be cut into 2 stages of whole ones"
    assert "--layers 6" in rows[0].error.hint
    of = compare([candidate_of("dualpipev")], [setting], per_chunk=True).rows[0].figures
    assert of is not None
    assert of.schedule.chain.layers.tolist() == [3] * 4


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("moe-order=serial,megatron", [Overlap(MoeOrder.SERIAL, 2), Overlap(MoeOrder.MEGATRON, 2, split=False)]),
        ("layers=1,4", [Overlap(layers=1, split=False), Overlap(layers=4, split=False)]),
    ],
)
def test_sweeps_of_how_layers_overlap(text: str, values: list[Overlap]) -> None:
    _, settings = swept(text, Setting(2, 4, Costs(), {}, Overlap(layers=2, split=False)), "ms")
    assert [setting.overlap for setting in settings] == values


def test_sweeps_of_what_parts_cost() -> None:
    base = Setting(2, 4, Costs(), {})
    _, (half, one) = swept("a2a=0.5,1", base, "ms")
    assert half.costs.layer == with_ratio(LayerCosts(), 0.5)
    assert (half.overlap, half.label, one.value) == (Overlap(), "0.5", 1.0)
    _, (none,) = swept("weights=0", base, "ms")
    assert none.costs.layer == parse_parts("attn.I=2,attn.W=0,mlp.I=2,mlp.W=0")


@pytest.mark.parametrize("text", ["moe-order=best", "a2a=-1", "a2a=x", "weights=1.5", "layers=0", "layers=x"])
def test_sweeps_of_moe_layers_that_cannot_be(text: str) -> None:
    with pytest.raises((ScheduleError, CostError)):
        swept(text, Setting(2, 4, Costs(), {}), "ms")
    with pytest.raises(ScheduleError, match="orders are serial"):
        candidate_of("dualpipev:moe-order=best")


def test_whole_stages_at_what_parts_come_to() -> None:
    costs, overlap = Costs(layer=parse_parts("mlp=2,a2a=1.5")), Overlap(MoeOrder.MEGATRON, 2)
    both = [Setting(4, 8, costs, {}, overlap, in_stages) for in_stages in (False, True)]
    for setting in both:
        assert setting.overlap is overlap
    parts, stages = (compare([candidate_of("dualpipev")], [setting]).rows[0].figures for setting in both)
    assert parts is not None
    assert stages is not None
    assert parts.makespan == stages.makespan
    assert (stages.all_to_alls, stages.exposed, stages.fraction_exposed) == (None, 0, 0.0)
    assert not stages.schedule.has_parts


def test_layers_of_a_stage_are_those_of_its_rank_of_the_plain_pipeline() -> None:
    """The same model: the slow layers of the second half stay in the second half, however it is cut."""
    slow = LayerCosts(mlp=PartCosts(4 * MS, 4 * MS, 4 * MS))
    costs, overlap = Costs(layer=LayerCosts(), stage_layers={1: slow}), Overlap(MoeOrder.MEGATRON, 2)
    names = ("1f1b", "dualpipev", "interleaved")
    of = compare([candidate_of(name) for name in names], [Setting(2, 8, costs, {}, overlap)])
    busy = {row.candidate.label: sum(row.figures.bubbles.busy) for row in of.rows if row.figures}
    assert len(set(busy.values())) == 1
    assert list(busy) == list(names)
    strays = compare(
        [candidate_of("dualpipev"), candidate_of("1f1b")],
        [Setting(2, 8, Costs(stage_layers={0: slow}), {}, overlap)],
    )
    assert all(row.error is None for row in strays.rows)
    with pytest.raises(CostError, match="the costs name stage 3, but the plain pipeline of 2 ranks has 2"):
        compare([candidate_of("dualpipev")], [Setting(2, 8, Costs(stage_layers={3: slow}), {}, overlap)])
