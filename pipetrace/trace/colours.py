"""Numbers that the Perfetto UI gives colours far apart.

The UI colours a slice by a hash of its correlation id as the trace processor words it (`tp:#3`), which puts 1, 2, 3, …
among a few hues. So each microbatch gets the id, of some that are its own, that falls near a hue of its own;
neighbours' hues lie a golden angle apart. A UI that hashes otherwise gives other colours, and one for each microbatch
still.
"""

from __future__ import annotations

import numpy as np

from pipetrace.action import IntArray

_SEARCHED = 1024  # microbatches; later ones take what colour comes
_TRIES = 200  # ids per microbatch; enough to come within a few degrees
_STEP = 1000  # between the ids of neighbours
_GOLDEN = 137.508  # degrees
_LIGHT = (12, 32)  # of 40: neither so dark nor so light that names are hard to read
_OFFSET, _PRIME = 18652613, 16777619.0  # of the UI's hash
_PREFIX = "tp:#"


def distinct_ids(count: int) -> IntArray:
    """For `count` microbatches ids above 0, no two alike; shape (count,)."""
    ids: IntArray = (np.arange(count, dtype=np.int64) + 1) * _STEP
    searched = min(count, _SEARCHED)
    tried = ids[:searched, None] + np.arange(_TRIES)
    state = _of_ids(tried)
    off = np.abs(np.abs(state) % 360 - np.arange(searched)[:, None] * _GOLDEN % 360)
    # The UI takes the lightness from the id with an x behind it.
    light = np.abs(_hashed(state, np.int64(ord("x")))) % 40
    fits = (light >= _LIGHT[0]) & (light <= _LIGHT[1])
    best = np.argmin(np.where(fits, np.minimum(off, 360 - off), 360), axis=1)
    ids[:searched] += best
    return ids


def _of_ids(value: IntArray) -> IntArray:
    """The UI's hash of ids."""
    state = np.full(value.shape, _OFFSET, dtype=np.int64)
    for letter in _PREFIX:
        state = _hashed(state, np.int64(ord(letter)))
    for power in range(len(str(int(value.max(initial=1)))) - 1, -1, -1):
        digit = value // 10**power
        state = np.where(digit > 0, _hashed(state, digit % 10 + ord("0")), state)
    return state


def _hashed(state: IntArray, character: IntArray | np.int64) -> IntArray:
    """The hash after one more character: FNV, multiplied in floats and cut to 32 bits, as JavaScript does."""
    product = (state ^ character).astype(np.float64) * _PRIME
    low: IntArray = product.astype(np.int64) & 0xFFFFFFFF
    return np.where(low >= 1 << 31, low - (1 << 32), low)
