"""The chain along which a microbatch goes forward and its gradient comes back.

Its places are the stages; or, where a schedule is written in parts of MoE layers, the parts of each layer of each
stage: attention, dispatch, mlp, combine. At either grain a forward needs the forward one place before, a backward its
own forward and the backward one place behind, and a weight gradient its own input gradient, so one graph serves both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipetrace.action import (
    IntArray,
    Part,
    code_layer,
    code_part,
    code_stage,
    pack,
    with_part,
)

_PARTS = len(Part)


@dataclass(frozen=True, eq=False)
class Chain:
    """The places of one model.

    Args:
        first: Place of each stage's first, and the number of places at the end; shape (stages + 1,).
        has_parts: Whether places are parts of layers rather than stages.
    """

    first: IntArray
    has_parts: bool

    @classmethod
    def of_codes(cls, code: IntArray, stages: int) -> Chain:
        """The chain that some actions are written along.

        Args:
            code: Of actions of stages below `stages`, all with a part or none. A stage has as many layers as the
                highest that an action names.
            stages: Of the model.
        """
        if not code_part(code).any():
            return cls(np.arange(stages + 1), False)
        layers = np.zeros(stages, dtype=np.int64)
        np.maximum.at(layers, code_stage(code), code_layer(code) + 1)
        return cls(np.concatenate([[0], np.cumsum(layers * _PARTS)]), True)

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def layers(self) -> IntArray:
        """Layers of each stage, 0 where places are stages; shape (stages,)."""
        return np.diff(self.first) // _PARTS

    def place(self, code: IntArray) -> IntArray:
        """The place of each action; the shape of `code`."""
        stage = code_stage(code)
        if not self.has_parts:
            return stage
        place: IntArray = self.first[stage] + code_layer(code) * _PARTS + code_part(code) - 1
        return place

    def stage(self, place: int) -> int:
        """The stage of a place."""
        return int(np.searchsorted(self.first, place, side="right")) - 1

    def code(self, place: int, kind: int, microbatch: int, pipe: int = 0) -> int:
        """The code of what a microbatch does at a place."""
        stage = self.stage(place)
        whole = pack(kind, stage, microbatch, pipe)
        if not self.has_parts:
            return whole
        layer, part = divmod(place - int(self.first[stage]), _PARTS)
        return with_part(whole, layer, part + 1)
