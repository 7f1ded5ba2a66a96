"""A rank's list for schedules that say "the next microbatch of this stage" instead of naming it."""

from __future__ import annotations

from collections import Counter

from pipetrace.action import Action, Kind, Pair
from pipetrace.schedule import RankOrder


class CountedOrder(RankOrder):
    """Appends each stage's microbatches in order; what is beyond the last microbatch is counted and left out.

    Args:
        microbatches: Each stage's microbatches run from 0 to this, exclusive.
    """

    __slots__ = ("backwards", "forwards", "microbatches", "weights")

    def __init__(self, microbatches: int) -> None:
        super().__init__()
        self.microbatches = microbatches
        self.forwards: Counter[int] = Counter()
        self.backwards: Counter[int] = Counter()
        self.weights: Counter[int] = Counter()

    def next_F(self, stage: int) -> None:
        """The stage's next forward."""
        i = self._take(self.forwards, stage)
        if i < self.microbatches:
            self.F(stage, i)

    def next_I(self, stage: int) -> None:
        """The stage's next input gradient."""
        i = self._take(self.backwards, stage)
        if i < self.microbatches:
            self.I(stage, i)

    def next_W(self, stage: int) -> None:
        """The stage's next weight gradient."""
        i = self._take(self.weights, stage)
        if i < self.microbatches:
            self.W(stage, i)

    def next_B(self, stage: int) -> None:
        """The stage's next full backward."""
        i = self._take(self.backwards, stage)
        self.weights[stage] += 1
        if i < self.microbatches:
            self.B(stage, i)

    def next_FB(self, forward_stage: int, backward_stage: int) -> None:
        """The next forward of one stage, overlapped with the next full backward of another."""
        i, j = self._take(self.forwards, forward_stage), self._take(self.backwards, backward_stage)
        self.weights[backward_stage] += 1
        self.append(Pair(Action(Kind.F, forward_stage, i), Action(Kind.B, backward_stage, j)))

    @staticmethod
    def _take(counter: Counter[int], stage: int) -> int:
        counter[stage] += 1
        return counter[stage] - 1
