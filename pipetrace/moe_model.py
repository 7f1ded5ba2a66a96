"""What the parts of an MoE layer take, from a model's shape and the hardware: a first estimate.

Of a microbatch of T tokens a rank, with hidden size h, sequences of s, E experts of width f, k of them a token, and n
ranks that share the experts; every linear operation counts 2 FLOPs a weight and token, in its forward, its input
gradient and its weight gradient alike:

=========  ==============================================  ===============================  ==================
part       F                                               I                                W
=========  ==============================================  ===============================  ==================
attn       linear + core                                   linear + 2 core                  linear
mlp        2 T k · 3 h f                                   the same                         the same
dispatch   latency + T k h b (n-1)/n / bandwidth           the same                         none
combine    the same                                        the same                         none
=========  ==============================================  ===============================  ==================

where linear = 2 T · (4 h² + h E) are the projections and the router, core = 2 T s h causal attention itself (half of
4 T s h), 3 h f the three matrices of a gated mlp, and b the bytes of an element. Tokens are spread evenly: each rank's
experts get T k of them. Norms, activations and memory traffic are not counted; so give the FLOP/s that are reached, not
the peak.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from pipetrace.errors import CostError
from pipetrace.part_costs import LayerCosts, PartCosts
from pipetrace.shown import shown
from pipetrace.times import MAX_COST, table_time

_MATRICES = 3  # of a gated mlp: gate, up, down


@dataclass(frozen=True, slots=True)
class MoeModel:
    """The shape of an MoE layer and what it runs on.

    Args:
        hidden: Hidden size h.
        ffn: Width f of an expert.
        experts: E, of the whole layer.
        top_k: Experts that each token goes to.
        tokens: T, of a microbatch on a rank.
        sequence: s, tokens of a sequence.
        ep: n, ranks that share the experts.
        tflops: 10¹² FLOP/s that a rank reaches.
        bandwidth: GB/s (10⁹ bytes) at which a rank sends and receives in an all-to-all.
        latency: ns of an all-to-all, beside its bytes.
        bytes: Of an element that is combined or a gradient.
        dispatch_bytes: Of an element that is dispatched forward, 1 for FP8; as `bytes` when None.

    Raises:
        CostError: A value is out of range.
    """

    hidden: int
    ffn: int
    experts: int
    top_k: int
    tokens: int
    sequence: int
    ep: int
    tflops: float
    bandwidth: float
    latency: int = 0
    bytes: float = 2
    dispatch_bytes: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            whole = field.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise CostError(f"{field.name} {shown(value)} of the model", f"give a {'whole ' * whole}number")
            least = 0 if field.name == "latency" else 1 if whole else 0
            if not (least <= value <= 1e12 and (value > 0 or field.name == "latency")):
                raise CostError(f"{field.name} {shown(value)} of the model", "give a number above 0, up to 1e12")
        if self.top_k > self.experts:
            raise CostError(f"top_k {self.top_k} of {self.experts} experts", "a token goes to different experts")

    @property
    def layer(self) -> LayerCosts:
        """What the parts take; see the module.

        Raises:
            CostError: A part takes over 1,000 s.
        """
        h, tokens = self.hidden, self.tokens
        linear = 2 * tokens * (4 * h * h + h * self.experts)
        core = 2 * tokens * self.sequence * h
        mlp = 2 * tokens * self.top_k * _MATRICES * h * self.ffn
        wide = self.bytes if self.dispatch_bytes is None else self.dispatch_bytes
        there, back = self._moved(wide), self._moved(self.bytes)
        return LayerCosts(
            attn=PartCosts(*map(self._computed, (linear + core, linear + 2 * core, linear))),
            dispatch=PartCosts(there, back),
            mlp=PartCosts(*map(self._computed, (mlp, mlp, mlp))),
            combine=PartCosts(back, back),
        )

    def _computed(self, flop: float) -> int:
        return _ns(flop / (self.tflops * 1e3))

    def _moved(self, bytes_each: float) -> int:
        """ns in which a rank sends its tokens to other ranks' experts, and receives as many."""
        moved = self.tokens * self.top_k * self.hidden * bytes_each * (self.ep - 1) / self.ep
        return self.latency + _ns(moved / self.bandwidth)


def _ns(time: float) -> int:
    if not (math.isfinite(time) and time <= MAX_COST):
        raise CostError("a part of the model's layers takes over 1000 s", "check tokens, tflops and bandwidth")
    return round(time)


def model_from_dict(table: Any, unit: str) -> MoeModel:
    """A model from a table of a costs file, whose latency is in the file's unit::

        [model]
        hidden = 4096
        ffn = 1536
        experts = 64
        top_k = 6
        tokens = 4096
        sequence = 4096
        ep = 8
        tflops = 400
        bandwidth = 40
        latency = 0.02

    Raises:
        CostError: An entry is missing, unknown or out of range.
    """
    if not isinstance(table, Mapping):
        raise CostError("model of the costs is no table", "write [model] and below it hidden = 4096 and so on")
    names = [field.name for field in fields(MoeModel)]
    if wrong := set(table) - set(names):
        raise CostError(
            f"unknown entry {shown(min(map(str, wrong)))} in model of the costs", f"entries are {', '.join(names)}"
        )
    if missing := [field.name for field in fields(MoeModel) if field.default is MISSING and field.name not in table]:
        raise CostError(f"model of the costs has no {missing[0]}", f"it also takes {', '.join(names)}")
    latency = table_time(table.get("latency", 0), unit)
    return MoeModel(**{**table, "latency": latency})
