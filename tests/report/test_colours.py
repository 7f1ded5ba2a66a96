"""Hues stay apart, also for dichromats, and labels are read."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from pipetrace.action import Action, Kind, Part
from pipetrace.report.colours import HUES, PART_LETTERS, RANK_HUES, Group, groups_of, is_low, shade, takes_alternate

Colour = npt.NDArray[np.float64]

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SEEN_BY = {
    "everyone": np.eye(3),
    "protanopes": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopes": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def linear(colour: str) -> Colour:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: Colour) -> Colour:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb.clip(0, 1)
    scaled = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    light, dark = sorted((float(linear(c) @ (0.2126, 0.7152, 0.0722)) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("eyes", SEEN_BY)
def test_hues_are_told_apart(eyes: str) -> None:
    seen = {group: lab(SEEN_BY[eyes] @ linear(hue.base)) for group, hue in HUES.items()}
    for one, other in combinations(HUES, 2):
        distance = float(np.linalg.norm(seen[one] - seen[other]))
        assert distance > 15, (one.name, other.name, distance)


@pytest.mark.parametrize("eyes", SEEN_BY)
def test_lines_of_ranks_are_told_apart(eyes: str) -> None:
    seen = [lab(SEEN_BY[eyes] @ linear(hue)) for hue in RANK_HUES]
    assert min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)) > 20


@pytest.mark.parametrize("plot", ["#f3f4f6", "#20252b"])  # as in page.css
def test_lines_of_ranks_stand_out_in_light_and_dark(plot: str) -> None:
    assert min(contrast(hue, plot) for hue in RANK_HUES) > 2.8


@pytest.mark.parametrize("group", list(Group), ids=lambda group: group.name)
def test_labels_have_contrast(group: Group) -> None:
    hue = HUES[group]
    assert contrast(hue.ink, hue.base) >= 4.5
    assert contrast(hue.ink, hue.alternate) >= 4.5


@pytest.mark.parametrize("group", [Group.F, Group.B, Group.I, Group.W], ids=lambda group: group.name)
def test_a_kind_stands_out_from_light_and_dark_pages(group: Group) -> None:
    assert contrast(HUES[group].base, "#ffffff") >= 2
    assert contrast(HUES[group].base, "#14171b") >= 3


@pytest.mark.parametrize("group", [Group.F, Group.B, Group.I, Group.W], ids=lambda group: group.name)
def test_the_shades_of_a_kind_differ_and_stay_nearest_to_it(group: Group) -> None:
    base, alternate = lab(linear(HUES[group].base)), lab(linear(HUES[group].alternate))
    own = float(np.linalg.norm(base - alternate))
    others = [lab(linear(hue.base)) for other, hue in HUES.items() if other is not group]
    assert 5 < own < min(float(np.linalg.norm(alternate - other)) for other in others)


KINDS = (Group.F, Group.B, Group.I, Group.W)


@pytest.mark.parametrize("eyes", SEEN_BY)
@pytest.mark.parametrize("chunks", [2, 4])
def test_shades_of_chunks_are_told_from_other_kinds_and_from_each_other(eyes: str, chunks: int) -> None:
    drawn = [
        (group, chunk, shade(group, chunk, chunks, odd)) for group in KINDS for chunk in range(chunks) for odd in (0, 1)
    ]
    seen = [(group, chunk, lab(SEEN_BY[eyes] @ linear(each.fill))) for group, chunk, each in drawn]
    for (one, first, a), (other, second, b) in combinations(seen, 2):
        distance = float(np.linalg.norm(a - b))
        if one is not other:
            assert distance > 11, (one.name, first, other.name, second, distance)
        elif chunks == 2 and first != second:
            assert distance > 18, (one.name, first, second, distance)


@pytest.mark.parametrize("group", KINDS, ids=lambda group: group.name)
def test_chunks_go_from_dark_to_light_and_their_labels_are_read(group: Group) -> None:
    for chunks in range(2, 17):
        shades = [shade(group, chunk, chunks, odd) for chunk in range(chunks) for odd in (False, True)]
        brightness = [float(linear(each.fill) @ (0.2126, 0.7152, 0.0722)) for each in shades]
        assert brightness == sorted(brightness)
        assert shades[0].fill == HUES[group].dark
        assert shades[-1].fill == HUES[group].light
        assert min(contrast(each.ink, each.fill) for each in shades) >= 4.5
        assert [each.letter for each in shades[::2]] == [
            group.name.lower() if i % 2 else group.name for i in range(chunks)
        ]
    assert shade(group, 0, 1, True).fill == HUES[group].alternate


def test_what_belongs_to_no_chunk_has_no_shade_of_one() -> None:
    for group in set(Group) - set(KINDS):
        assert shade(group, 1, 2, False).fill == HUES[group].base


def test_every_kind_has_a_group() -> None:
    code = np.array([Action(kind, 0, None if kind >= Kind.UNSHARD else 1).code for kind in Kind])
    named = dict(zip(Kind, groups_of(code).tolist(), strict=True))
    assert [named[kind] for kind in (Kind.F, Kind.B, Kind.I, Kind.W)] == [Group.F, Group.B, Group.I, Group.W]
    assert named[Kind.RECV_B] == named[Kind.SEND_F] == Group.TRANSFER
    assert named[Kind.OPTIM] == Group.OTHER
    assert takes_alternate(code).tolist() == [kind < Kind.UNSHARD for kind in Kind]


def test_parts_of_a_layer_take_a_shade_each() -> None:
    parts = [Action(Kind.F, 0, microbatch, layer=0, part=part) for microbatch in (1, 2) for part in Part]
    code = np.array([action.code for action in parts])
    assert is_low(code).tolist() == takes_alternate(code).tolist() == [True, True, False, False] * 2
    assert [PART_LETTERS[part] for part in Part] == ["a", "d", "m", "c"]
    assert not is_low(np.array([Action(Kind.F, 0, 1).code])).any()
