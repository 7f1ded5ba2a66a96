"""Keys that stand twice in one event: of two times or names one is lost, and decoders take the last without a word."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pipetrace.trace.reading.events import Event

_MOST_LOOKED_INTO = 64
"""Keys too many in a stretch up to which it is decoded again to see; more are of a tool that has them in arguments."""
_KEYS: dict[bytes, Callable[[Event], int]] = {
    b'"ts"': lambda e: e.ts is not None,
    b'"dur"': lambda e: e.dur is not None,
    b'"name"': lambda e: (e.name is not None) + (e.args is not None and e.args.name is not None),
}


def repeated_keys(text: bytes, events: Sequence[Event]) -> int:
    """How often a name or a time stands beside another one in one event.

    Args:
        text: JSON of these events, alone or in a list.
        events: As they were decoded.
    """
    too_many = 0
    for key, has in _KEYS.items():
        stands = text.count(key)
        if stands != len(events):  # each has it once, in most files
            too_many += max(0, stands - sum(map(has, events)))
    return _counted(text) if 0 < too_many <= _MOST_LOOKED_INTO else 0


def _counted(text: bytes) -> int:
    found = 0

    def look(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        seen = dict(pairs)
        found += len(pairs) - len(seen)
        return seen

    try:
        json.loads(text, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return 0  # what is no JSON is told elsewhere
    return found
