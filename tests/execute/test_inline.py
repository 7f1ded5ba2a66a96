from __future__ import annotations

import pipetrace
from pipetrace.action import parse
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute.config import RunConfig
from pipetrace.execute.workloads.sleep import SleepWorkload
from pipetrace.placement import Placement
from pipetrace.schedule import Schedule
from pipetrace.waiting import Wait
from tests.execute.in_process import run_rank

INSTANT = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=16, wait=Wait.INLINE)


def test_a_receive_is_posted_and_waited_for_at_its_use() -> None:
    schedule = pipetrace.build("zb-h1", 3, 1)
    _, labels, _ = run_rank(schedule, SleepWorkload(schedule, INSTANT), rank=1, config=INSTANT)
    assert labels.seen == [
        (0, text)
        for text in (
            "POST:1RECV_F0",
            "WAIT:1RECV_F0",
            "PP:1F0",
            "POST:1SEND_F0",
            "POST:1RECV_B0",
            "WAIT:1RECV_B0",
            "PP:1I0",
            "POST:1SEND_B0",
            "PP:1W0",
            "WAIT:1SEND_F0",
            "WAIT:1SEND_B0",
        )
    ]


def test_a_pair_posts_what_both_halves_take_before_it_waits() -> None:
    lists = ["0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1", "2F0 2B0 2F1 2B1"]
    schedule = Schedule.from_actions("t", Placement.loop(3), 2, [[parse(a) for a in text.split()] for text in lists])
    _, labels, _ = run_rank(schedule, SleepWorkload(schedule, INSTANT), rank=1, config=INSTANT)
    texts = [text for _, text in labels.seen]
    at = texts.index("PP:(1F1;1B0)OVERLAP_F_B")
    assert texts[at - 4 : at] == ["POST:1RECV_F1", "POST:1RECV_B0", "WAIT:1RECV_F1", "WAIT:1RECV_B0"]
