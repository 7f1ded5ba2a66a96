"""An analysis as plain values, for JSON; `docs/diff.md` says what the keys mean. Times are integers in ns."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipetrace.action import code_text
from pipetrace.diff.analysis import Analysis
from pipetrace.diff.paths import Paths
from pipetrace.diff.slip import NO_PREDECESSOR
from pipetrace.diff.waits import Awaits, Waits
from pipetrace.diff.what_if import WhatIf


def document(of: Analysis) -> dict[str, Any]:
    """All of an analysis but the single actions. Where ranks' clocks differ and are not known, what each computed."""
    table: dict[str, Any] = {"stages": [_stage(of, share.stage) for share in of.stages]}
    if not of.one_clock:
        return table
    fall, found, clocks = of.waterfall, of.found, of.clocks
    ideal, measured = of.waits
    references = of.references
    return {
        "clocks": None
        if clocks is None
        else {
            "ahead_ns": {str(rank): ns for rank, ns in clocks.ahead.items()},
            "early_transfers": clocks.early,
            "worst_ns": clocks.worst,
            "makespan_ns": of.measured.makespan,
        },
        "swapped": {"transfers": of.swapped[0], "worst_ns": of.swapped[1]},
        "faults": [
            {
                "kind": str(fault.kind),
                "names": list(fault.names),
                "amount": fault.amount,
                "count": fault.count,
                "total_ns": fault.total,
                "effect_ns": fault.effect if found.whole else None,
                "felt": found.is_felt(fault) if found.whole else None,
            }
            for fault in found.faults
        ],
        "noise_ns": {"replays": of.noise.makespan, "steps": of.noise.steps},
        "waterfall": {
            "base": of.base_name,
            "base_ns": fall.base,
            "bars": [
                {"part": str(bar.part), "name": bar.name, "size_ns": bar.size, "makespan_ns": bar.makespan}
                for bar in fall.bars
            ],
            "residual_ns": fall.residual,
            "measured_ns": fall.measured,
            "deviation_ns": fall.deviation,
            "notes": list(fall.notes),
        },
        "not_recorded": list(of.absent),
        "references": None
        if references is None
        else {
            "work_ns": references.work,
            "schedule_ns": references.schedule,
            "imbalance_ns": references.imbalance,
            "overhead_ns": references.overhead,
            "fitted_ns": references.fitted,
            "given_ns": references.given,
        },
        "waiting": {"ideal": _waits(ideal), "measured": _waits(measured)},
        "what_if": [_what_if(row) for row in of.what_if],
        "other_schedules": [_what_if(row) for row in of.other_schedules],
        "other_schedules_assume": list(of.assumed),
        "critical_path": _paths(of.paths),
        **table,
        "overlapped": [
            {
                "stage": row.stage,
                "kind": row.kind,
                "overlapped_ns": row.overlapped,
                "alone_ns": row.alone,
                "counts": list(row.counts),
            }
            for row in of.overlapped
        ],
    }


def slip_parts(of: Analysis) -> dict[str, dict[str, Any]]:
    """The parts of each matched action's slip, in ns, by the action's text; of a pair by both halves."""
    work, slips = of.work, of.slips
    rows = slips.row
    texts = [code_text(code, partner) for code, partner in zip(work.code.tolist(), work.partner.tolist(), strict=True)]
    columns = {
        "growth_ns": slips.growth[rows],
        "predecessor_slip_ns": slips.predecessor_slip[rows],
        "transfer_ns": slips.transfer[rows],
        "gap_ns": slips.gap[rows],
        "slack_ns": slips.slack[rows],
    }
    lists = {name: column.tolist() for name, column in columns.items()}
    predecessors = slips.predecessor[rows].tolist()
    parts: dict[str, dict[str, Any]] = {}
    halves = zip(work.code[rows].tolist(), work.partner[rows].tolist(), predecessors, strict=True)
    for i, (code, partner, predecessor) in enumerate(halves):
        of_row: dict[str, Any] = {name: values[i] for name, values in lists.items()}
        of_row["predecessor"] = None if predecessor == NO_PREDECESSOR else texts[predecessor]
        parts[code_text(code)] = of_row
        if partner:
            parts[code_text(partner)] = of_row
    return parts


def _stage(of: Analysis, stage: int) -> dict[str, Any]:
    share = next(share for share in of.stages if share.stage == stage)
    medians = {f"{kind}_ns": ns for kind, ns in share.median.items()}
    return {"stage": stage, **medians, "total_ns": share.total, "ratio": round(share.ratio, 6)}


def _waits(of: Waits) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "busy_ns": busy,
            **{f"{awaits.name.lower()}_ns": ns for awaits, ns in of.of(rank).items()},
            "for": [
                {"awaits": str(awaits), "rank": source, "ns": ns}
                for (at, awaits, source), ns in sorted(of.idle.items(), key=lambda item: -item[1])
                if at == rank and source >= 0 and awaits is not Awaits.NOTHING_LEFT
            ],
        }
        for rank, busy in of.busy.items()
    ]


def _what_if(row: WhatIf) -> dict[str, Any]:
    return {"name": row.name, "makespan_ns": row.makespan, "saved_ns": row.saved}


def _paths(of: Paths) -> dict[str, Any]:
    return {
        "shared_actions": of.shared,
        "parts_at": None if of.parts_at is None else str(of.parts_at.action),
        "joins_at": None if of.joins_at is None else str(of.joins_at.action),
        **{
            name: {
                "time_ns": dict(time),
                "steps": [
                    {
                        "action": str(step.action),
                        "rank": step.rank,
                        "transfer": step.transfer,
                        "start_ns": int(np.int64(step.start)),
                        "end_ns": step.end,
                        "delay_ns": step.delay,
                        "cause": step.cause,
                    }
                    for step in path
                ],
            }
            for name, path, time in (
                ("ideal", of.ideal, of.ideal_time),
                ("measured", of.measured, of.measured_time),
            )
        },
    }
