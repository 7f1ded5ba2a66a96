"""Units in which people give times, and how long one may be."""

from __future__ import annotations

from collections.abc import Mapping

UNITS: Mapping[str, int] = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""ns of each."""

MAX_COST = 1_000 * UNITS["s"]
"""ns of the longest action."""
