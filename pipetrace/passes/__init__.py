"""Schedule → Schedule: each pass takes a valid schedule and gives back another order of the same work.

>>> from pipetrace import build, passes
>>> split = passes.split_backward(build("1f1b", ranks=4, microbatches=8))
>>> zb = passes.place_weight_gradients(split, passes.WeightRule.BUBBLES, caps=4)
>>> zb.same_order(build("zb-h1", ranks=4, microbatches=8))
True
"""

from pipetrace.passes.communication import add_communication, remove_communication
from pipetrace.passes.expand_moe import expand_moe
from pipetrace.passes.overlap_orders import After, MoeOrder, Overlap
from pipetrace.passes.split_backward import split_backward
from pipetrace.passes.stage_costs import stage_costs, stage_schedule
from pipetrace.passes.weight_gradients import WeightRule, place_weight_gradients

__all__ = [
    "After",
    "MoeOrder",
    "Overlap",
    "WeightRule",
    "add_communication",
    "expand_moe",
    "place_weight_gradients",
    "remove_communication",
    "split_backward",
    "stage_costs",
    "stage_schedule",
]
