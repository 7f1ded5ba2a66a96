from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import Action, Kind, Part, parse_action
from pipetrace.chain import Chain


def codes(*texts: str) -> np.ndarray:
    return np.array([parse_action(text).code for text in texts])


def test_stages() -> None:
    chain = Chain.of_codes(codes("0F0", "2F0"), 3)
    assert (len(chain), chain.has_parts, chain.layers.tolist()) == (3, False, [0, 0, 0])
    assert chain.place(codes("0F0", "2I5")).tolist() == [0, 2]
    assert Action.from_code(chain.code(2, Kind.B, 4)) == parse_action("2B4")


def test_parts_of_stages_with_different_layers() -> None:
    chain = Chain.of_codes(codes("0F0@1.attn", "1F0@0.mlp", "0W1@0.mlp"), 2)
    assert (len(chain), chain.has_parts, chain.layers.tolist()) == (12, True, [2, 1])
    assert chain.place(codes("0F0@0.attn", "0F0@0.combine", "0B7@1.dispatch", "1W0@0.mlp")).tolist() == [0, 3, 5, 10]


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4), st.sampled_from([Kind.F, Kind.B, Kind.I]), st.integers(0, 9)
)
def test_every_place_has_one_action(layers: list[int], kind: Kind, microbatch: int) -> None:
    every = [
        Action(kind, stage, microbatch, 0, layer, part)
        for stage, of in enumerate(layers)
        for layer in range(of)
        for part in Part
    ]
    chain = Chain.of_codes(np.array([action.code for action in every]), len(layers))
    assert chain.layers.tolist() == layers
    assert chain.place(np.array([action.code for action in every])).tolist() == list(range(len(chain)))
    assert [chain.code(place, kind, microbatch) for place in range(len(chain))] == [action.code for action in every]
    assert [chain.stage(place) for place in range(len(chain))] == [action.stage for action in every]
