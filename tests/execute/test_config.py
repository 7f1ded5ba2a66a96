from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from pipetrace.errors import CostError, RunError
from pipetrace.execute import RunConfig
from pipetrace.execute.inject import parse_injections
from pipetrace.waiting import Wait


def test_the_defaults_are_valid() -> None:
    assert RunConfig().options() == {
        "warmup": 1,
        "check": False,
        "timeout": 60.0,
        "message_bytes": 8192,
        "wait": "prefetch",
    }
    assert RunConfig("transformer").options()["hidden"] == 128
    told = RunConfig(inject=parse_injections(["no-tags"]), preflight=False).options()
    assert (told["inject"], told["preflight"]) == (["no-tags"], False)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workload": "nap"}, "unknown workload 'nap'"),
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"steps": True}, "steps is True"),
        ({"warmup": -1}, "warmup is -1"),
        ({"message_bytes": 4}, "message_bytes is 4"),
        ({"message_bytes": 1 << 31}, "message_bytes is"),
        ({"sequence": 1}, "sequence is 1"),
        ({"seed": -1}, "seed is -1"),
        ({"hidden": 30, "heads": 4}, "hidden 30 cannot be shared by 4 heads"),
        ({"workload": "transformer", "ep": 2}, "ep is 2, but transformer has no experts"),
        ({"workload": "moe", "ep": 2, "wait": Wait.DATAFLOW}, "dataflow may leave the list order on one replica"),
        ({"workload": "moe", "ep": 3}, "8 experts cannot be shared by 3 expert-parallel ranks"),
        ({"workload": "moe", "top_k": 9}, "top_k is 9, but there are 8 experts"),
        ({"workload": "moe", "capacity": -0.5}, "the capacity is -0.5"),
        ({"workload": "moe", "capacity": math.nan}, "the capacity is nan"),
        ({"timeout": 0.0}, "the timeout is 0.0 s"),
        ({"timeout": math.nan}, "the timeout is nan s"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_hint(options: dict[str, Any], says: str) -> None:
    with pytest.raises(RunError, match=says) as caught:
        RunConfig(**options)
    assert caught.value.hint


def test_importing_the_package_leaves_torch_alone() -> None:
    code = "import sys, pipetrace.execute; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_way_of_waiting_is_checked_at_once() -> None:
    assert RunConfig(wait="dataflow").wait is Wait.DATAFLOW  # type: ignore[arg-type]
    for options in ({"wait": "later"}, {"caps": (-1,)}, {"caps": 3}):
        with pytest.raises(CostError, match="way of waiting"):
            RunConfig(**options)
