"""Ids for colours: the hash is the UI's, and neighbours are far apart in hue."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

from pipetrace.trace.colours import distinct_ids

# The hash by which the Perfetto UI colours, in JavaScript as there: products lose bits as floats. The hue is the hash
# of the id on 360, the lightness that of the id with an x behind it, on 40.
HASH = """
const step = (state, letter) => (16777619 * (state ^ letter.charCodeAt(0))) & 0xffffffff;
const hash = (text, size) => Math.abs([...text].reduce(step, 18652613)) % size;
for (const id of process.argv.slice(1)) console.log(hash(id, 360), hash(id + "x", 40));
"""


def test_ids_differ() -> None:
    ids = distinct_ids(3000)
    assert np.unique(ids).size == 3000
    assert ids.min() > 0
    assert distinct_ids(0).size == 0
    assert distinct_ids(10).tolist() == ids[:10].tolist()


def test_neighbours_are_far_apart_in_hue_and_readable() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    ids = [f"tp:#{i}" for i in distinct_ids(64).tolist()]  # as the trace processor words them
    printed = subprocess.run([node, "-e", HASH, *ids], capture_output=True, text=True, check=True, timeout=60).stdout
    hues, lights = np.array([line.split() for line in printed.splitlines()], dtype=np.int64).T
    assert hues.size == 64
    for apart in (1, 2):
        off = np.abs(hues[apart:] - hues[:-apart])
        assert np.minimum(off, 360 - off).min() > 45
    assert ((lights >= 12) & (lights <= 32)).all()
