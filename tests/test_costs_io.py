from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given

from pipetrace.costs import Costs, Link, Network, PairCost, RunCosts, StageCosts
from pipetrace.costs_io import costs_from_dict, costs_to_dict, parse_costs
from pipetrace.errors import CostError
from pipetrace.part_costs import PartCosts
from pipetrace.placement import Placement
from pipetrace.same_model import cut
from pipetrace.schedule import Schedule
from pipetrace.times import parse_time
from tests.strategies import costs
from tests.test_schedule import of

MS = 1_000_000


def test_costs_without_text_are_one_of_the_unit() -> None:
    assert parse_costs("") == Costs()
    assert parse_costs("", unit="us").default == StageCosts(1_000, 1_000, 1_000)


def test_costs_in_any_order_and_unit() -> None:
    read = parse_costs(" W=0.5, F = 1.25 ,FB=2.5,B=3", unit="ms", p2p=7)
    assert read == Costs(
        default=StageCosts(F=1_250_000, I=MS, W=500_000, B=3 * MS),
        pair=PairCost(2_500_000, 2_500_000, 2_500_000),
        p2p=7,
    )


def test_times_are_exact_where_floats_are_not() -> None:
    assert parse_time("1.000001") == 1_000_001
    assert parse_time("0.1", "s") == 100_000_000
    assert parse_time("1e-3", "ms") == 1_000
    assert parse_time("0.4", "ns") == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("F=1_000", "'1_000' is no time"),
        ("F=\u0661", "is no time"),  # an Arabic 1
        ("F=1e18", "a time of 1e18 ns is too long"),
        ("F=1e999999999", "too long"),
        ("F=1e99999999999999999999", "is no time|too long"),
        ("F=-1e999999999", "negative"),
        ("F=" + "9" * 5000, r"9\.\.\. ns is too long"),
        ("F=0e999999999,I=1e-999999999,W=" + "0" * 5000, ""),
        ("F=" + "x" * 5000, r"x\.\.\.' is no time"),
    ],
)
def test_numbers_are_plain_and_not_longer_than_any_cost(text: str, words: str) -> None:
    if not words:
        assert parse_costs(text, unit="ns").default == StageCosts(0, 0, 0)
        return
    with pytest.raises(CostError, match=words) as caught:
        parse_costs(text, unit="ns")
    assert len(str(caught.value)) < 200


def test_costs_of_a_stage_that_is_not_there() -> None:
    schedule = of("0F0 0B0 | 1F0 1B0", microbatches=1)
    given = Costs(stages={0: StageCosts(1, 1, 1), 7: StageCosts(1, 1, 1)})
    with pytest.raises(CostError, match=r"name stage 7, but .* has 2 stages"):
        given.durations(schedule)


def test_a_message_that_never_arrives() -> None:
    with pytest.raises(CostError, match="over 1000 s"):
        Costs(network=Network(message_bytes=1 << 50, bandwidth=1e-300))


@pytest.mark.parametrize(
    "text", ["F", "F=", "F=x", "F=1,F=2", "X=1", "F=1;I=2", "F=-1", "F=nan", "F=inf", "F=1e99", "F=1==2", ","]
)
def test_costs_that_cannot_be_read(text: str) -> None:
    with pytest.raises(CostError):
        parse_costs(text)


def test_unknown_unit() -> None:
    with pytest.raises(CostError, match="hour"):
        parse_costs("", unit="hour")


@pytest.mark.parametrize("pair", [(-1, 0, 0), (5, 6, 5), (5, 5, -1)])
def test_pair_costs_that_cannot_be(pair: tuple[int, int, int]) -> None:
    with pytest.raises(CostError):
        PairCost(*pair)


def test_durations_by_stage_kind_and_pair() -> None:
    schedule = of("0F0 (0F1;0B0)OVERLAP_F_B 0I1 0W1 | 1F0 1B0 1F1 1B1", microbatches=2)
    given = Costs(default=StageCosts(F=1, I=2, W=3), stages={1: StageCosts(F=10, I=20, W=30, B=40)})
    assert given.durations(schedule).tolist() == [1, 1 + 5, 2, 3, 10, 40, 10, 40]
    paired = Costs(default=given.default, pair=PairCost(4, 2, 3))
    assert paired.durations(schedule).tolist()[1] == 4
    forward, backward = paired.ready(schedule, paired.durations(schedule))
    assert (forward[1], backward[1]) == (2, 3)
    assert (forward[0], backward[2]) == (1, 2)


def test_what_is_free_takes_no_time() -> None:
    schedule = Schedule.from_actions("test", Placement.loop(1), 1, [list(of("0F0 0B0").actions(0))])
    assert Costs(default=StageCosts(0, 0, 0)).durations(schedule).tolist() == [0, 0]


@given(costs(8))
def test_costs_round_trip_through_toml(given: Costs) -> None:
    assert costs_from_dict(tomllib.loads(tomli_w.dumps(costs_to_dict(given)))) == given


def test_costs_as_people_write_them() -> None:
    text = 'unit = "us"\np2p = 0.5\ndefault = { F = 2 }\nstages.3 = { W = 4.5 }\npair = { duration = 3 }'
    assert costs_from_dict(tomllib.loads(text)) == Costs(
        default=StageCosts(2_000, 1_000, 1_000),
        stages={3: StageCosts(2_000, 1_000, 4_500)},
        pair=PairCost(3_000, 3_000, 3_000),
        p2p=500,
    )


def test_a_network_as_people_write_it() -> None:
    text = """
        p2p = 0.001
        [network]
        message_bytes = 1_000_000
        bandwidth = 50
        ranks_per_node = 2
        across = { latency = 0.02, bandwidth = 10 }
        links.3-2 = { latency = 1 }
    """
    read = costs_from_dict(tomllib.loads(text))
    assert read.transfer_times(*np.indices((4, 4))).tolist() == [
        [0, 21_000, 120_000, 120_000],
        [21_000, 0, 120_000, 120_000],
        [120_000, 120_000, 0, 21_000],
        [120_000, 120_000, 1_000_000, 0],
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unitt = 1", "unitt"),
        ('unit = "h"', "unit 'h'"),
        ("default = 3", "default .* no table"),
        ("default = { X = 3 }", "'X' in default"),
        ('default = { F = "many" }', "many"),
        ("default = { F = true }", "True"),
        ("stages = 3", "stages"),
        ("stages.one = { F = 1 }", "stages"),
        ("stages.1 = 3", r"stages\.1 .* no table"),
        ("pair = { forward_ready = 1 }", "duration"),
        ("p2p = -1", "-1"),
        ("network = 3", "network .* no table"),
        ("network.bandwith = 3", "bandwith"),
        ("network.bandwidth = 0", "bandwidth 0"),
        ("network.bandwidth = true", "bandwidth True"),
        ("network.ranks_per_node = 0", "ranks_per_node 0"),
        ("network.message_bytes = 1.5", "message_bytes 1.5"),
        ("network.across = 3", "across"),
        ("network.across = { speed = 3 }", "across"),
        ("network.links = 3", "links"),
        ("network.links.a-b = { latency = 1 }", "links"),
        ("network.links.0-1 = { latency = 'x' }", "'x'"),
        ('unit = ["ms"]', r"unit \['ms'\]"),
        ("p2p = 0x" + "f" * 5000, "too long"),
        ("p2p = [0x" + "f" * 5000 + "]", "is no time"),
        ('p2p = "1_000"', "1_000"),
        ("stages.00 = { F = 1 }\nstages.0 = { F = 2 }", "no table of stage numbers"),
        ("stages." + "9" * 5000 + " = { F = 1 }", "no table of stage numbers"),
        ('stages."\u0661" = { F = 1 }', "no table of stage numbers"),
        ("network.links.00-1 = { latency = 1 }", "no table of rank pairs"),
        ("network.message_bytes = 0x" + "f" * 5000, "bytes"),
        ("network.ranks_per_node = 0x" + "f" * 5000, "ranks a node"),
        ("network.bandwidth = [0x" + "f" * 5000 + "]", "bandwidth"),
        ("default = { F = '" + "x" * 5000 + "' }", r"x\.\.\.'"),
    ],
)
def test_tables_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(CostError, match=words) as caught:
        costs_from_dict(tomllib.loads(text))
    assert "--unit" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("wrong", ["1", 1.5, True, None, -1, [1]])
def test_costs_of_a_wrong_type(wrong: Any) -> None:
    for make in (
        lambda: StageCosts(F=wrong, I=1, W=1),
        lambda: StageCosts(1, 1, 1, recompute=wrong),
        lambda: PairCost(wrong, 0, 0),
        lambda: PairCost(3, wrong, 0),
        lambda: PartCosts(F=wrong),
        lambda: Link(wrong),
        lambda: Network(message_bytes=wrong),
        lambda: Network(ranks_per_node=0 if wrong is None else wrong),
        lambda: Costs(p2p=wrong),
    ):
        with pytest.raises(CostError) as caught:
            make()
        assert len(str(caught.value)) < 200
    for bandwidth in ("1", True, 0, float("nan")):
        with pytest.raises(CostError, match="bandwidth"):
            Link(0, bandwidth)  # type: ignore[arg-type]
        with pytest.raises(CostError, match="bandwidth"):
            Network(bandwidth=bandwidth)  # type: ignore[arg-type]


def test_what_is_of_a_stage_is_sent_there() -> None:
    with pytest.raises(CostError) as caught:
        costs_from_dict({"recompute": 1})
    assert "default = { recompute = 1 }" in caught.value.hint
    assert costs_from_dict({"default": {"recompute": 1}}).default.recompute == 1_000_000


def test_links_to_nowhere() -> None:
    for pair in ((2, 2), (-1, 0), (0, "1")):
        with pytest.raises(CostError, match="a link from rank"):
            Network(links={pair: Link(5)})  # type: ignore[dict-item]
    far = Costs(network=Network(links={(0, 99): Link(5)}))
    with pytest.raises(CostError, match="name the link 0-99, but test has 2 ranks"):
        far.durations(of("0F0 0B0 | 1F0 1B0"))


def test_few_pairs_of_many_ranks_cost_little() -> None:
    many = np.arange(1_000_000)
    costs = Costs(p2p=7, network=Network(links={(2, 3): Link(5), (3, 2): Link(6)}))
    assert costs.transfer_times(many, many + 1)[:4].tolist() == [7, 7, 5, 7]
    assert costs.transfer_times(many, many).sum() == 0


def test_single_pairs_have_costs_of_their_own() -> None:
    run = {name: {"duration": 2} for name in ("alone", "first", "inner", "last")}
    costs = costs_from_dict(
        {"pair": {"duration": 5}, "pairs": {"0-1": {"duration": 3, "forward_ready": 1}, "1-0": run}}
    )
    assert costs.pairs[0, 1] == PairCost(3 * MS, MS, 3 * MS)
    assert isinstance(costs.pairs[1, 0], RunCosts)
    assert costs_from_dict(costs_to_dict(costs)) == costs
    for table, message in (
        ({"pairs": {"0-1": {"duration": 3}}}, "all others none"),
        ({"pair": {"duration": 5}, "pairs": {"0": {"duration": 3}}}, "pairs of the costs are no table"),
        ({"pair": {"duration": 5}, "pairs": 3}, "pairs of the costs are no table"),
        ({"pair": {"duration": 5}, "pairs": {"0-1": {"forward_ready": 3}}}, "pairs.0-1 of the costs has no duration"),
    ):
        with pytest.raises(CostError, match=message):
            costs_from_dict(table)
    schedule = of("0F0 1F0 (0F1;1B0)OVERLAP_F_B 1F1 1B1 0B0 0B1", placement=Placement.loop(1, 2), microbatches=2)
    assert costs.durations(schedule).tolist()[2] == 3 * MS
    with pytest.raises(CostError, match="the costs name stage 7"):
        replace(costs, pairs={(0, 7): PairCost(1, 1, 1)}).durations(schedule)
    with pytest.raises(CostError, match="the costs name the pair 0-1"):
        cut(costs, 2, 4)
