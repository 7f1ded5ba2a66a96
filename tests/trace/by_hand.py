"""What the recorded folders amount to, worked out from their JSON alone: nothing of pipetrace is used here.

An action's input and output are found by name (a label's own receive is the one that was posted under the label that
names it), not by where ranges happen to end, so that reader and test do not share a way of thinking.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple


class Event(NamedTuple):
    """An event with its times in ns after the file's base."""

    start: int
    end: int
    name: str
    category: str
    thread: int
    correlation: int


class Tile(NamedTuple):
    """A compute action; ns after the file's base."""

    kind: str
    start: int
    end: int


class Receive(NamedTuple):
    """A receive; ns after the file's base.

    Args:
        ready: When both sides had posted it, or, on a GPU, the sender had made it.
        since: From when compute stood idle for it; `there` where it did not.
        there: When it had arrived.
    """

    ready: int
    since: int
    there: int


class Rank(NamedTuple):
    """What a rank did."""

    tiles: list[Tile]
    receives: list[Receive]


class Figures(NamedTuple):
    """Figures of a step in ns, lists over ranks."""

    makespan: int
    busy: list[int]
    global_idle: list[int]
    span: list[int]
    in_span_idle: list[int]
    waited: list[int]
    transfer: list[int]
    bubble: float


def events_of(path: Path) -> list[Event]:
    """The complete events of a file, by start, the longer first; times are exact, as decimals are."""
    data = path.read_bytes()
    trace = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data, parse_float=Decimal)
    return sorted((_event(e) for e in trace["traceEvents"] if e["ph"] == "X"), key=lambda e: (e.start, -e.end))


def _event(of: dict[str, Any]) -> Event:
    start, length = int(of["ts"] * 1000), int(of["dur"] * 1000)
    correlation = of.get("args", {}).get("correlation", -1)
    return Event(start, start + length, of["name"], of["cat"], of["tid"], correlation)


def _within(events: list[Event], outer: Event, name: str) -> Event | None:
    return next((e for e in events if e.name == name and outer.start <= e.start < outer.end), None)


def _range_of(events: list[Event], post: Event, name: str) -> Event:
    """gloo's range of an operation that posted it: it begins while the operation lasts."""
    found = _within(events, post, name)
    assert found is not None
    return found


def runtime(folder: Path, ranks: int) -> list[Rank]:
    """torch's multi-stage runtime: `PP:3RECV_F1` posts what `PP:3F1` waits for, if it stands in the trace at all."""
    files = [events_of(folder / f"rank{rank}.json.gz") for rank in range(ranks)]
    labelled = [{e.name.removeprefix("PP:"): e for e in events if e.name.startswith("PP:")} for events in files]
    posted = {name: label for labels in labelled for name, label in labels.items()}
    found = []
    for events, labels in zip(files, labelled, strict=True):
        rank = Rank([], [])
        for name, label in labels.items():
            stage, kind, microbatch = _parts(name)
            if kind not in ("F", "B", "I", "W"):
                continue
            there = label.start
            awaited = f"{stage}RECV_{'F' if kind == 'F' else 'B'}{microbatch}"
            if kind != "W" and awaited in labels:
                post = _within(events, labels[awaited], "c10d::recv_")
                assert post is not None
                arrived = _range_of(events, post, "gloo:recv").end
                sender = f"{stage - 1}SEND_F{microbatch}" if kind == "F" else f"{stage + 1}SEND_B{microbatch}"
                there = max(there, arrived)
                ready = min(max(labels[awaited].start, posted[sender].start), arrived)
                rank.receives.append(Receive(ready, min(label.start, arrived), arrived))
            rank.tiles.append(Tile(kind, there, label.end))
        found.append(rank)
    return found


def _parts(name: str) -> tuple[int, str, str]:
    """`3RECV_F1` → 3, RECV_F, 1."""
    stage = len(name) - len(name.lstrip("0123456789"))
    kind = name[stage:].rstrip("0123456789")
    return int(name[:stage]), kind, name[stage + len(kind) :]


def gpipe(folder: Path, ranks: int) -> list[Rank]:
    """torch's GPipe: a label begins with the wait for its input and ends with the posting of its output."""
    files = [events_of(folder / f"rank{rank}.json.gz") for rank in range(ranks)]
    sent: dict[tuple[int, str], int] = {}
    for number, events in enumerate(files):
        for label in _called(events, "Forward ", "Backward "):
            if (send := _within(events, label, "c10d::send")) is not None:
                sent[number, label.name] = send.start
    found = []
    for number, events in enumerate(files):
        rank = Rank([], [])
        for label in _called(events, "Forward ", "Backward "):
            start = label.start
            if (post := _within(events, label, "c10d::recv_")) is not None:
                sender = number + (-1 if label.name.startswith("F") else 1)
                start = _range_of(events, post, "gloo:recv").end
                ready = min(max(post.start, sent[sender, label.name]), start)
                rank.receives.append(Receive(ready, post.start, start))
            rank.tiles.append(Tile(label.name[0], start, sent.get((number, label.name), label.end)))
        found.append(rank)
    return found


def _called(events: list[Event], *beginnings: str) -> Iterator[Event]:
    return (e for e in events if e.name.startswith(beginnings) and e.category == "user_annotation")


def cpu_1f1b(folder: Path) -> list[Rank]:
    """Two ranks without labels; all that one sends goes to the other, in order."""
    files = [events_of(folder / f"rank{rank}.json.gz") for rank in range(2)]
    found = []
    for number, events in enumerate(files):
        tiles = cpu_tiles(events, "aten::detach" if number == 0 else "aten::ones_like")
        sends = [e.start for e in files[1 - number] if e.name == "c10d::send"]
        posts = [e for e in events if e.name == "c10d::recv_"]
        rank = Rank(tiles, [])
        for post, send in zip(posts, sends, strict=True):
            there = _range_of(events, post, "gloo:recv").end
            rank.receives.append(
                Receive(min(max(post.start, send), there), _idle_since(tiles, post.start, there), there)
            )
        found.append(rank)
    return found


def _idle_since(tiles: list[Tile], posted: int, there: int) -> int:
    return min(max([posted, *(tile.end for tile in tiles if tile.start < there)]), there)


def cpu_tiles(events: list[Event], last: str) -> list[Tile]:
    """Forwards from their first linear to what follows the last op of the model; backwards by what autograd ran."""
    tiles: list[Tile] = []
    apart = Tile("", 0, 0)
    inside = 0
    for event in events:
        if event.category != "cpu_op" or event.start < inside:
            continue
        inside = event.end
        if event.name.startswith("autograd::engine"):
            if tiles[-1].kind == "B":
                tiles[-1] = Tile("B", tiles[-1].start, event.end)
            else:
                tiles.append(Tile("B", event.start, event.end))
        elif event.name == "aten::linear" and (not tiles or tiles[-1].kind != "F"):
            tiles.append(Tile("F", event.start, event.end))
        elif event.name == last:
            tiles[-1] = Tile("F", tiles[-1].start, event.end)
            tiles.append(apart)
        elif event.name.startswith("c10d::recv") and tiles and tiles[-1].kind == "B":
            tiles.append(apart)
    return [tile for tile in tiles if tile.kind]


def gpu_1f1b(folder: Path, ranks: int) -> list[Rank]:
    """Kernels without labels: a receive for each forward but stage 0's and each backward but the last stage's."""
    files = [events_of(folder / f"rank{rank}.json.gz") for rank in range(ranks)]
    tiles = [gpu_tiles(events) for events in files]
    # made[rank]["F"][3]: when the forward of microbatch 3 was done there.
    made = [{kind: [t.end for t in of if t.kind == kind] for kind in "FB"} for of in tiles]
    found = []
    for number, events in enumerate(files):
        kernels = iter([e for e in events if e.category == "kernel" and "SendRecv" in e.name])
        counts = {"F": 0, "B": 0}
        receives = []
        for tile in tiles[number]:
            sender = number + (-1 if tile.kind == "F" else 1)
            if 0 <= sender < ranks:
                kernel, ready = next(kernels), made[sender][tile.kind][counts[tile.kind]]
                since = _idle_since(tiles[number], kernel.start, kernel.end)
                receives.append(Receive(max(kernel.start, ready), since, kernel.end))
            counts[tile.kind] += 1
        assert next(kernels, None) is None
        found.append(Rank(tiles[number], receives))
    return found


def gpu_tiles(events: list[Event]) -> list[Tile]:
    """Three kernels that the main thread launched are a forward, six of autograd's thread a backward."""
    thread = {e.correlation: e.thread for e in events if e.category == "cuda_runtime"}
    queues: dict[int, list[Event]] = defaultdict(list)
    tiles = []
    for kernel in (e for e in events if e.category == "kernel" and e.thread == 7):
        launcher = thread[kernel.correlation]
        queues[launcher].append(kernel)
        if len(queues[launcher]) == {1: 3, 2: 6}[launcher]:
            of = queues.pop(launcher)
            tiles.append(Tile("F" if launcher == 1 else "B", of[0].start, of[-1].end))
    return tiles


def figures(ranks: list[Rank]) -> Figures:
    """Both bubbles and the rest, by walking over each rank's time from tile to tile."""
    begin = min(tile.start for rank in ranks for tile in rank.tiles)
    makespan = max(tile.end for rank in ranks for tile in rank.tiles) - begin
    busy, span = [], []
    for rank in ranks:
        covered = 0
        reached = first = min(tile.start for tile in rank.tiles)
        for _, start, end in sorted(rank.tiles, key=lambda tile: tile.start):
            covered += max(0, end - max(start, reached))
            reached = max(reached, end)
        busy.append(covered)
        span.append(reached - first)
    return Figures(
        makespan,
        busy,
        [makespan - of for of in busy],
        span,
        [whole - of for whole, of in zip(span, busy, strict=True)],
        [sum(r.there - r.since for r in rank.receives) for rank in ranks],
        [sum(r.there - r.ready for r in rank.receives) for rank in ranks],
        sum(makespan - of for of in busy) / (len(ranks) * makespan),
    )
