from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetrace.action import Kind, Part
from pipetrace.errors import ScheduleError
from pipetrace.passes.overlap_orders import After, Item, MoeOrder, Overlap

places = st.none() | st.sampled_from(After)


@st.composite
def overlaps(draw: st.DrawFn) -> Overlap:
    of = Overlap(draw(st.sampled_from(MoeOrder)), draw(st.integers(1, 4)), draw(st.booleans()))
    if not of.splits:
        return of
    return Overlap(of.order, of.layers, True, draw(places), draw(places))


def expected(layers: int, forward: bool, backward: list[Kind]) -> Counter[Item]:
    kinds = [*([Kind.F] if forward else []), *backward]
    return Counter(
        Item(kind, layer, part)
        for kind in kinds
        for layer in range(layers)
        for part in Part
        if not (kind is Kind.W and part in (Part.DISPATCH, Part.COMBINE))
    )


@given(overlaps(), st.booleans(), st.none() | st.sampled_from([Kind.B, Kind.I, Kind.W]))
def test_a_tile_has_every_part_once_and_in_order(of: Overlap, forward: bool, backward: Kind | None) -> None:
    if backward is None or backward is Kind.W:
        forward = backward is None
    items = of.items(forward, backward)
    splits = forward and backward is Kind.B and of.splits
    backs = [Kind.I, Kind.W] if splits else [] if backward is None else [backward]
    assert Counter(items) == expected(of.layers, forward, backs)
    at = {item: position for position, item in enumerate(items)}
    back = Kind.I if splits else backward
    for item in items:
        along = item.layer * len(Part) + item.part - 1
        if item.kind is Kind.F and along:
            layer, part = divmod(along - 1, len(Part))
            assert at[Item(Kind.F, layer, Part(part + 1))] < at[item]
        elif item.kind is Kind.W and splits:
            assert at[Item(Kind.I, item.layer, item.part)] < at[item]
        elif item.kind is back and item.kind is not Kind.W and along < of.layers * len(Part) - 1:
            layer, part = divmod(along + 1, len(Part))
            assert at[Item(item.kind, layer, Part(part + 1))] < at[item]


@pytest.mark.parametrize(
    ("order", "compute", "travels"),
    [
        (MoeOrder.ALIGNED, "attnF mlpB mlpF attnB", "combB dispF dispB combF"),
        (MoeOrder.MEGATRON, "attnF mlpI mlpW mlpF attnI attnW", "combI dispF dispI combF"),
        (MoeOrder.DUALPIPE, "attnF mlpI mlpF mlpW attnI attnW", "combI dispF dispI combF"),
        (MoeOrder.SERIAL, "attnF mlpF mlpB attnB", "dispF combF combB dispB"),
    ],
)
def test_the_lanes_of_a_pair(order: MoeOrder, compute: str, travels: str) -> None:
    items = Overlap(order).items(True, Kind.B)
    lanes: dict[bool, list[str]] = {False: [], True: []}
    for item in items:
        lanes[item.part in (Part.DISPATCH, Part.COMBINE)].append(f"{item.part.name.lower()[:4]}{item.kind.name}")
    assert (" ".join(lanes[False]), " ".join(lanes[True])) == (compute, travels)


def test_layers_are_counted() -> None:
    with pytest.raises(ScheduleError, match="stages of 2000 layers"):
        Overlap(layers=2000)
