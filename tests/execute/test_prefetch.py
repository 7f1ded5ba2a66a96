from __future__ import annotations

import pipetrace
from pipetrace.costs import Costs, StageCosts
from pipetrace.execute.config import RunConfig
from pipetrace.execute.workloads.sleep import SleepWorkload
from tests.execute.in_process import run_rank

INSTANT = RunConfig(costs=Costs(StageCosts(0, 0, 0)), message_bytes=16)


def test_labels_in_order_and_never_one_inside_another() -> None:
    schedule = pipetrace.build("zb-h1", 3, 1)
    _, labels, _ = run_rank(schedule, SleepWorkload(schedule, INSTANT), rank=1)
    assert labels.seen == [
        (0, text)
        for text in (
            "POST:1RECV_F0",
            "POST:1RECV_B0",
            "WAIT:1RECV_F0",
            "PP:1F0",
            "POST:1SEND_F0",
            "WAIT:1RECV_B0",
            "PP:1I0",
            "POST:1SEND_B0",
            "PP:1W0",
            "WAIT:1SEND_F0",
            "WAIT:1SEND_B0",
        )
    ]
