"""The parts of each action's slip, as annotations of its slice in a trace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipetrace.action import NO_ACTION, IntArray
from pipetrace.diff.analysis import Analysis
from pipetrace.diff.observe import observe
from pipetrace.diff.slip import NO_PREDECESSOR
from pipetrace.diff.slip import slips as slips_of
from pipetrace.timeline import Lane
from pipetrace.trace.naming import Arg, action_text

_PARTS = ("growth", "predecessor_slip", "transfer", "gap", "slack")


def slip_args(of: Analysis) -> Callable[[slice], list[Arg]]:
    """Why each tile of the measured timeline ended later than its counterpart that is shown above it.

    slip = growth + predecessor_slip + transfer + gap - slack.

    Returns:
        The annotations of some rows of `of.of.measured`; times in ns.
    """
    work, timeline = of.work, of.of.measured
    shown = observe(work, of.of.ideal, work.at(of.costs))
    slips = slips_of(work, shown.inputs, shown.graph, observe(work, timeline, shown.inputs))
    matched = np.zeros(len(work), dtype=np.bool_)
    matched[slips.row] = True

    def args(rows: slice) -> list[Arg]:
        row = np.where(timeline.lane[rows] <= Lane.ALL_TO_ALL, work.rows_of.find(timeline.code[rows]), -1)
        # Half of a pair says nothing of the other half's tile.
        whole = (row >= 0) & (work.code[row] == timeline.code[rows]) & (work.partner[row] == timeline.partner[rows])
        has = whole & matched[row] & (timeline.replica[rows] == 0)
        if not has.any():
            return []
        bound: IntArray = np.where(has, slips.predecessor[row], NO_PREDECESSOR)
        said = [Arg(f"slip_{name}_ns", getattr(slips, name)[row], has) for name in _PARTS]
        follows = bound != NO_PREDECESSOR
        before = action_text(
            np.where(follows, work.code[bound], NO_ACTION), np.where(follows, work.partner[bound], NO_ACTION)
        )
        return [*said, Arg("slip_predecessor", before, follows)]

    return args
