from __future__ import annotations

import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.costs_io import costs_from_dict
from pipetrace.errors import CostError
from pipetrace.metrics import MemorySizes, StageSizes, parse_size, sizes_from_dict, sizes_to_dict
from pipetrace.metrics.sizes import MAX_SIZE

byte_counts = st.integers(0, MAX_SIZE)
stage_sizes = st.builds(StageSizes, byte_counts, byte_counts, byte_counts, byte_counts)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("33_554_432", 33_554_432),
        ("1e9", 10**9),
        ("40GiB", 40 << 30),
        (" 40 gib ", 40 << 30),
        ("1.5 MB", 1_500_000),
        ("1KB", 1000),
        ("1kB", 1000),
        ("7B", 7),
        ("0.3B", 0),
        ("16TiB", MAX_SIZE),
    ],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "1XB", "1Gi", "17TiB", "nan", "inf", "1e99", "1,5GB", "1 2", "1e999999"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(CostError, match="is no size"):
        parse_size(text)


def test_a_table_as_in_the_docstring() -> None:
    text = """
        [memory]
        activation_freed_at_input = "1.5GiB"
        activation_freed_at_weight = "0.5GiB"
        gradient = 33_554_432
        parameters = "12GiB"
        stages.0 = { parameters = "14GiB" }
    """
    table = tomllib.loads(text)
    read = sizes_from_dict(table["memory"])
    assert read.unit == "bytes"
    assert read.of(1) == StageSizes(3 << 29, 1 << 29, 1 << 25, 12 << 30)
    assert read.of(0) == StageSizes(3 << 29, 1 << 29, 1 << 25, 14 << 30)
    costs_from_dict(table)  # it may stand in a costs file


@given(stage_sizes, st.dictionaries(st.integers(0, 64), stage_sizes, max_size=4))
def test_sizes_come_back_through_toml(default: StageSizes, stages: dict[int, StageSizes]) -> None:
    sizes = MemorySizes(default, stages, "bytes")
    assert sizes_from_dict(tomllib.loads(tomli_w.dumps(sizes_to_dict(sizes)))) == sizes


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"activations": 1}, "unknown entry 'activations' in memory"),
        ({"stages": {"0": {"F": 1}}}, "unknown entry 'F' in stages.0 of memory"),
        ({"stages": {"x": {}}}, "no table of stage numbers"),
        ({"stages": 3}, "no table of stage numbers"),
        ({"stages": {"0": 3}}, "stages.0 of memory is no table"),
        ({"gradient": True}, "gradient of memory is no size"),
        ({"gradient": [1]}, "gradient of memory is no size"),
        ({"gradient": "many"}, "'many' is no size"),
        ({"gradient": -1}, "'-1' is no size"),
        (4, "memory is no table"),
    ],
)
def test_tables_that_cannot_be_read(table: Any, words: str) -> None:
    with pytest.raises(CostError, match=words):
        sizes_from_dict(table)


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(CostError, match="gradient"):
        StageSizes(gradient=-1)
    with pytest.raises(CostError, match="parameters"):
        StageSizes(parameters=MAX_SIZE + 1)


def test_one_chunk_freed_at_w_unless_said() -> None:
    assert MemorySizes().of(3) == StageSizes(0, 1, 0, 0)
    assert MemorySizes().unit == "chunks"


def test_sizes_of_a_wrong_type() -> None:
    for wrong in ("1GiB", 1.5, True):
        with pytest.raises(CostError, match="parameters takes"):
            StageSizes(parameters=wrong)  # type: ignore[arg-type]
    with pytest.raises(CostError, match="sizes in 'GiB'"):
        MemorySizes(unit="GiB")
