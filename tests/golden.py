"""Reference orders and values, and how their keys and texts are to be read.

`data/golden_schedules.json` holds, by "<source>/<Name>_p<ranks>_m<microbatches>…", the exact order of each rank as the
reference implementation produced it, and times from an independent longest-path evaluator. For the three schedules
that depend on tie-breaks of a search only makespan and peaks are there.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetrace.action import Action, Pair, parse
from pipetrace.costs import Costs, PairCost, StageCosts
from pipetrace.schedule import Schedule
from pipetrace.schedules import build

GOLDEN: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "golden_schedules.json").read_text())

_NAMES = {
    "1F1B": "1f1b",
    "1F1B-V": "1f1b-v",
    "1f1b": "1f1b",
    "1f1b_interleave_overlap": "moe-1f1b",
    "Chimera": "chimera",
    "DualPipe": "dualpipe",
    "DualPipeV": "dualpipev",
    "GPipe": "gpipe",
    "GPipe-fifo": "gpipe",
    "GPipe-lifo": "gpipe",
    "Interleaved1F1B": "interleaved",
    "Interleaved1F1B_vpp": "interleaved",
    "InterleavedZeroBubble": "interleaved-zb",
    "LoopedBFS": "looped-bfs",
    "MoE-overlap-Interleaved1F1B": "moe-1f1b",
    "V-Half": "v-half",
    "V-Min": "v-min",
    "ZB-H1": "zb-h1",
    "ZB-auto": "zb-h1",  # the automatic scheduler limited to ZB-H1's memory, where m > p
    "ZB-H2": "zb-h2",
    "ZB-V-handcrafted": "zbv",
    "ZBVZeroBubble": "zbv",
    "interleave": "interleaved",
    "zb1p": "zb-h1",
}
SCALE = 1_000
"""ns of one unit of the golden costs, so that overlapped pairs of 2.5 units are integers too."""


def name_of(key: str) -> str:
    """pipetrace's name of a golden schedule."""
    return _NAMES[re.sub(r"_p\d.*", "", key.partition("/")[2])]


def built(key: str) -> Schedule:
    """The schedule that pipetrace builds for a golden key."""
    entry, name = GOLDEN[key], name_of(key)
    options: dict[str, object] = {}
    if name in ("interleaved", "moe-1f1b", "interleaved-zb", "looped-bfs"):
        options["chunks"] = entry["stages"] // entry["p"]
    if group := re.search(r"_g(\d+)$", key):
        options["group"] = int(group[1])
    if key.startswith("derived/GPipe-lifo"):
        options["backward"] = "lifo"
    return build(name, entry["p"], entry["m"], **options)


def order(key: str, rank: int) -> list[Action | Pair]:
    """A rank's golden order, with microbatches numbered over the whole step instead of within each pipe."""
    entry = GOLDEN[key]
    pipes = 2 if "d1:" in entry["ranks"][rank] else 1

    def whole(item: Action | Pair) -> Action | Pair:
        if isinstance(item, Pair):
            forward, backward = whole(item.forward), whole(item.backward)
            assert isinstance(forward, Action)
            assert isinstance(backward, Action)
            return Pair(forward, backward)
        assert item.microbatch is not None
        return replace(item, microbatch=item.microbatch + item.pipe * (entry["m"] // pipes))

    return [whole(parse(word)) for word in entry["ranks"][rank].split()]


def costs_of(key: str) -> Costs:
    """The costs that a key like `F10_I12_W8_comm1_ovl25` names."""
    number = {m[1]: round(float(m[2]) * SCALE) for m in re.finditer(r"([A-Za-z]+)([\d.]+)", key)}
    pair = PairCost(number["ovl"], number["ovl"], number["ovl"]) if "ovl" in number else None
    return Costs(StageCosts(number["F"], number["I"], number["W"]), pair=pair, p2p=number["comm"])
