"""Where a process stands: global rank → (replica, pipeline rank).

By what is said first of: `--mesh`, as torch's DeviceMesh counts (the last dimension fastest); what pipetrace's own
runs say of themselves; process groups for the pipeline in `distributedInfo`. Without any of these all ranks are one
pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pipetrace.errors import TraceError
from pipetrace.shown import shown
from pipetrace.trace.run_folder import RunInfo

_RANK_IN_NAME = re.compile(r"rank[_\-]?([0-9]{1,6})", re.IGNORECASE)
_MESH = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,30}=[0-9]{1,60}(,[A-Za-z_][A-Za-z_0-9]{0,30}=[0-9]{1,60})*")
MOST_RANKS = 1_000_000
"""Processes of a job, at most: a number beyond is a mistake."""
_PIPELINE = ("pp", "pipeline", "pipe")
_MESH_HINT = "give sizes in torch's order, with one called pp: --mesh dp=2,pp=4,tp=2"


@dataclass(frozen=True)
class Shape:
    """How the processes of a job make up pipelines.

    Args:
        ranks: Pipeline ranks p.
        replicas: Copies of the pipeline.
        pipelines: The global ranks of each replica, by pipeline rank; empty where replicas stand one after the other.
        told_by: Where it is known from, in words; empty where all ranks are one pipeline.
    """

    ranks: int
    replicas: int = 1
    pipelines: tuple[tuple[int, ...], ...] = ()
    told_by: str = ""

    def place(self, global_rank: int) -> int:
        """replica × p + pipeline rank of a process.

        Raises:
            TraceError: It is in none of the pipelines.
        """
        if not self.pipelines:
            return global_rank
        for replica, members in enumerate(self.pipelines):
            if global_rank in members:
                return replica * self.ranks + members.index(global_rank)
        raise TraceError(f"rank {global_rank} is in none of the {self.replicas} pipelines ({self.told_by})", _MESH_HINT)


def parse_mesh(text: str) -> dict[str, int]:
    """Reads "dp=2,pp=4,tp=2".

    Raises:
        TraceError: It is none, or has no pipeline.
    """
    if not _MESH.fullmatch(text.replace(" ", "")):
        raise TraceError(f"mesh {shown(text)} is no list of sizes", _MESH_HINT)
    pairs = [part.split("=") for part in text.replace(" ", "").split(",")]
    mesh = {name: int(size) for name, size in pairs}
    if len(mesh) < len(pairs) or sum(name.lower() in _PIPELINE for name in mesh) != 1:
        raise TraceError(f"mesh {shown(text)} must name each dimension once, and one of them pp", _MESH_HINT)
    for name, size in mesh.items():
        if not size:
            raise TraceError(f"mesh {shown(text)}: {name} has no size", _MESH_HINT)
    if (world := prod(mesh.values())) > MOST_RANKS:
        raise TraceError(
            f"mesh {shown(text)} is of {shown(world)} processes: more than {MOST_RANKS:,} are none", _MESH_HINT
        )
    return mesh


def of_mesh(mesh: Mapping[str, int], processes: int | None) -> Shape:
    """The pipelines of a mesh.

    Args:
        mesh: Sizes, the last one counting fastest.
        processes: World size, where it is known.

    Raises:
        TraceError: The mesh has another number of processes.
    """
    names, sizes = list(mesh), list(mesh.values())
    world = prod(sizes)
    text = ",".join(f"{name}={size}" for name, size in mesh.items())
    if processes is not None and world != processes:
        raise TraceError(f"mesh {text} is of {world} processes, but the traces are of {processes}", _MESH_HINT)
    at = next(i for i, name in enumerate(names) if name.lower() in _PIPELINE)
    stride = prod(sizes[at + 1 :])
    p = sizes[at]
    pipelines = [
        tuple(outer * stride * p + rank * stride + inner for rank in range(p))
        for outer in range(world // (stride * p))
        for inner in range(stride)
    ]
    return Shape(p, len(pipelines), tuple(pipelines), f"mesh {text}")


def of_groups(groups: Mapping[int, Sequence[int]]) -> Shape | None:
    """The pipelines that process groups make up.

    Args:
        groups: Of each recorded rank the members of its pipeline's group, in order.

    Returns:
        None where they do not go together.
    """
    pipelines = sorted({tuple(members) for members in groups.values()})
    members = [rank for pipeline in pipelines for rank in pipeline]
    same = len({len(pipeline) for pipeline in pipelines}) == 1 and len(set(members)) == len(members)
    if not same or not all(rank in groups[rank] for rank in groups):
        return None
    return Shape(len(pipelines[0]), len(pipelines), tuple(pipelines), "the process groups of the pipeline")


def pipeline_group(distributed: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The members of the pipeline's process group, as a trace's `distributedInfo` describes its groups."""
    rank, config = number(distributed.get("rank")), distributed.get("pg_config")
    if rank is None or not isinstance(config, list):
        return None
    for group in config:
        if not isinstance(group, dict):
            continue
        words = re.split(r"[^a-z]+", str(group.get("pg_desc", "")).lower())
        ranks = group.get("ranks")
        if isinstance(ranks, list) and any(word in _PIPELINE for word in words):
            members = [number(one) for one in ranks]
            if rank in members and None not in members:
                return tuple(one for one in members if one is not None)
    return None


def shape_of(
    processes: int | None, mesh: Mapping[str, int] | None, run: RunInfo | None, groups: Mapping[int, Sequence[int]]
) -> Shape | None:
    """How the processes of a job make up pipelines; None where nothing tells and their number is not known.

    Raises:
        TraceError: What is said does not go together.
    """
    if mesh is not None:
        return of_mesh(mesh, processes)
    if run is not None and run.replicas > 1:
        if processes is not None and run.ranks * run.replicas != processes:
            raise TraceError(
                f"the run names {run.replicas} replicas of {run.ranks} ranks, but the traces are of {processes} ranks",
                "give the traces of one run",
            )
        return Shape(run.ranks, run.replicas, told_by="the run")
    if groups and (shape := of_groups(groups)) is not None and shape.ranks > 1:
        return shape
    return None if processes is None else Shape(processes)


def rank_of(path: Path, distributed: Mapping[str, Any], pipetrace: Mapping[str, Any], named: int | None) -> int:
    """The global rank of a trace: as `distributedInfo` says, else pipetrace's metadata, its processes, its file's name.

    Raises:
        TraceError: Nothing says it.
    """
    for said in (number(distributed.get("rank")), number(pipetrace.get("rank")), named):
        if said is not None:
            return said
    if match := _RANK_IN_NAME.search(path.name):
        return int(match[1])
    raise TraceError(
        f"{path}: neither distributedInfo nor the file's name says which rank this is",
        "call the file rank0.json.gz, with its rank",
    )


def number(value: Any) -> int | None:
    """A count from 0 that stands in metadata; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value):
        return int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_RANKS
    return value if is_count else None
