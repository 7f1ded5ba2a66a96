from __future__ import annotations

import pytest

from pipetrace.errors import RunError
from pipetrace.execute.job import load_factory
from pipetrace.execute.workloads.sleep import build


def test_a_factory_is_loaded_by_its_name() -> None:
    assert load_factory("pipetrace.execute.workloads.sleep:build") is build


@pytest.mark.parametrize("path", ["no.such.module:build", "pipetrace.execute.job:nothing", "pipetrace", ":", ""])
def test_what_is_not_there_is_named(path: str) -> None:
    with pytest.raises(RunError, match="cannot load the workload") as caught:
        load_factory(path)
    assert "package.module:function" in caught.value.hint
