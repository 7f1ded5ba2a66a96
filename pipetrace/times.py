"""Units in which people give times, and how long one may be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

UNITS: Mapping[str, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""ns of each."""

MAX_COST = 1_000 * UNITS["s"]
"""ns of the longest action."""


def is_count(value: object, most: int | None = None) -> bool:
    """Whether a value is a whole number from 0 to `most`; True and 1.0 are none, an integer of numpy is.

    >>> is_count(3), is_count(True), is_count(1.5), is_count("3"), is_count(3, 2)
    (True, False, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return int(value) >= 0 and (most is None or int(value) <= most)
