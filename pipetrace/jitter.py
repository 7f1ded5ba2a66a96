"""Durations that differ from action to action by chance, the same chance wherever it is computed.

Each action's factor follows from its identity and a seed alone, so that simulator and executor take the same times, on
whatever rank and in whatever order the action runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import IntArray
from pipetrace.errors import CostError
from pipetrace.shown import shown

MAX_SEED = (1 << 32) - 1
_MASK = (1 << 64) - 1
_STEP, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True)
class Jitter:
    """How far durations scatter.

    An action's factor is even between 1 - share and 1 + share.

    Args:
        share: Between 0 and 1.
        seed: Which chance.

    Raises:
        CostError: One is out of range.
    """

    share: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise CostError(f"a jitter of {shown(self.share)}", "give a share between 0 and 1, e.g. 0.5 for ±50 %")
        if not 0 <= self.seed <= MAX_SEED:
            raise CostError(f"a seed of {shown(self.seed)}", f"give a whole number between 0 and {MAX_SEED}")

    def applied(self, code: IntArray, duration: IntArray) -> IntArray:
        """ns that actions take which would take `duration`; both of shape (n,)."""
        # splitmix64 (Steele, Lea and Flood, OOPSLA 2014), whose state is the identity; it wraps on purpose.
        mixed = code.astype(np.uint64) + np.uint64((self.seed + 1) * _STEP & _MASK)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX1)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX2)
        even = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * _UNIT
        scaled: IntArray = np.rint(duration * (1 + self.share * (2 * even - 1))).astype(np.int64)
        return scaled


def parse_jitter(text: str) -> Jitter:
    """Reads `0.5`, or `0.5:7` with a seed.

    Raises:
        CostError: It is neither.
    """
    share, colon, seed = text.partition(":")
    try:
        if not text.isascii() or (colon and not seed.isdecimal()):
            raise ValueError
        return Jitter(float(share), int(seed or 0))
    except ValueError:
        raise CostError(
            f"cannot read the jitter {shown(text)}", "give a share, e.g. 0.5 for ±50 %, or 0.5:7 with a seed"
        ) from None
