"""Names and texts of columns of actions are those of single actions."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetrace.action import NO_ACTION, Action, Pair, code_text
from pipetrace.trace.naming import action_text, tile_name
from pipetrace.trace.text import strings
from tests.strategies import actions, pairs


@given(st.lists(actions() | pairs(), max_size=20))
@settings(deadline=None)
def test_texts(items: list[Action | Pair]) -> None:
    code = np.array([item.forward.code if isinstance(item, Pair) else item.code for item in items], dtype=np.int64)
    partner = np.array([item.backward.code if isinstance(item, Pair) else NO_ACTION for item in items], dtype=np.int64)
    assert strings(action_text(code, partner), code.size) == list(map(str, items))
    assert [code_text(c, p) for c, p in zip(code.tolist(), partner.tolist(), strict=True)] == list(map(str, items))
    for name, item in zip(strings(tile_name(code, partner, with_stage=True), code.size), items, strict=True):
        first = item.forward if isinstance(item, Pair) else item
        words = name.split(" & ")[0].split(" ")
        assert words[0] == first.kind.name
        assert f"s{first.stage}" in words
        if first.part is not None:
            assert words.pop(1) == first.part.name.lower()
            assert f"l{first.layer}" in words
        assert first.microbatch is None or words[1] == str(first.microbatch)
        assert (" & " in name) == isinstance(item, Pair)
