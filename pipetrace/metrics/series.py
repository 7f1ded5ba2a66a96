"""A value over time that changes in steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import IntArray


@dataclass(frozen=True, slots=True)
class Series:
    """A step function.

    Args:
        time: When it changes, ns, strictly rising; shape (n,).
        value: From then on; shape (n,).
    """

    time: IntArray
    value: IntArray

    @classmethod
    def of_changes(cls, time: IntArray, change: IntArray) -> Series:
        """The running sum of changes in any order; those at one time count as one."""
        at, index = np.unique(time, return_inverse=True)
        net = np.zeros(at.size, dtype=np.int64)
        np.add.at(net, index, change)
        return cls(at, np.cumsum(net))

    def mean(self, start: int, end: int) -> float:
        """The time-weighted mean from `start` to `end`; before its first change the value is 0.

        Bytes times ns leave the range of 64-bit integers, so this is a float.
        """
        if end <= start:
            return 0.0
        lasts = np.diff(np.clip(self.time, start, end), append=end)
        return float(np.dot(self.value.astype(np.float64), lasts)) / (end - start)
