"""The tile chart in a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from pipetrace import Action, Costs, Kind, Pair, StageCosts, build, simulate
from pipetrace.action import code_kind
from pipetrace.passes import MoeOrder, Overlap, expand_moe
from pipetrace.report.colours import HUES, MIXED, Group
from pipetrace.report.colours import shade as shade_of
from pipetrace.report.heatmap import covered_fraction
from pipetrace.report.terminal_cells import _shades
from pipetrace.report.terminal_chart import chart, charts
from pipetrace.report.terminal_layout import layout_of
from pipetrace.timeline import Lane, Tile, Timeline

MS = 1_000_000


def lines(text: Text) -> list[str]:
    return text.plain.split("\n")


def style_at(text: Text, line: int, column: int) -> str:
    offset = sum(len(before) + 1 for before in lines(text)[:line]) + column
    return next((str(span.style) for span in text.spans if span.start <= offset < span.end), "")


def test_plain_text_reads_as_the_papers_picture() -> None:
    assert lines(chart(simulate(build("1f1b", 4, 8)), width=80, colour=False))[:5] == [
        "rank 0 F0F1F2F3............B0- F4B1- F5B2- F6B3- F7B4- ..B5- ..B6- ..B7- ",
        "rank 1 ..F0F1F2........B0- F3B1- F4B2- F5B3- F6B4- F7B5- ..B6- ..B7- ....",
        "rank 2 ....F0F1....B0- F2B1- F3B2- F4B3- F5B4- F6B5- F7B6- ..B7- ........",
        "rank 3 ......F0B0- F1B1- F2B2- F3B3- F4B4- F5B5- F6B6- F7B7- ............",
        "       |0 ms     |5        |10       |15       |20       |25       |30",
    ]


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [24, 40, 57, 80, 120, 300])
@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 8), (8, 32), (16, 16), (2, 1)])
def test_no_line_is_wider_than_the_terminal(ranks: int, microbatches: int, width: int, colour: bool) -> None:
    text = chart(simulate(build("zb-h1", ranks, microbatches)), width=width, colour=colour)
    assert max(map(len, lines(text))) <= width
    rows = [line for line in lines(text) if re.match(r"rank +\d", line)]
    assert rows
    assert len(rows) % ranks == 0
    for first in range(0, len(rows), ranks):
        assert len({len(row) for row in rows[first : first + ranks]}) == 1


def test_cells_are_in_proportion_to_time() -> None:
    schedule = build("1f1b", 4, 8)
    row = lines(chart(simulate(schedule), width=80, colour=False))[0][len("rank 0 ") :]
    assert row.count("F") * 2 + row.count("B") * 4 + row.count(".") == len(row)
    assert row.count(".") / len(row) == pytest.approx(9 / 33)


def test_colour_says_the_kind_and_text_the_microbatch() -> None:
    text = chart(simulate(build("zb-h1", 4, 8)), width=80, colour=True)
    assert lines(text)[0].split()[:4] == ["rank", "0", "0", "1"]
    forward, odd = HUES[Group.F], HUES[Group.F].alternate
    assert style_at(text, 0, 7) == f"{forward.ink} on {forward.base}"
    assert style_at(text, 0, 9) == f"{forward.ink} on {odd}"
    assert HUES[Group.I].base in style_at(text, 0, 21)
    assert style_at(text, 0, 16) == ""


def test_a_row_too_long_for_the_terminal_is_wrapped() -> None:
    text = lines(chart(simulate(build("zb-h1", 8, 32)), width=80, colour=False))
    assert text[0] == "rank 0 " + "F" * 8 + "." * 7 + "IWF" * 19 + "I"
    assert text[9] == "rank 0 WFIWFIWFIWFIWFIWIWIWIWIWIWIWIW"
    assert text[17].strip().startswith("|80 ms")
    halves = chart(simulate(build("zb-h1", 8, 32)), width=80, colour=True).plain
    assert len([line for line in halves.split("\n") if re.match(r"rank +\d", line)]) == 8
    assert "half a cell is 1 ms" in halves
    assert "110 columns" in halves.replace("\n", " ")


def test_warm_up_and_drain_are_drawn_and_the_middle_is_cut_out() -> None:
    text = lines(chart(simulate(build("zb-h1", 16, 64)), width=80, colour=False))
    assert text[0] == "rank 0  " + "F" * 16 + "." * 15 + "I ⋯100%⋯ " + "IW" * 16
    assert text[15] == "rank 15 " + "." * 15 + "FI" * 8 + "F ⋯100%⋯ " + "IWF" * 5 + "I" + "W" * 16
    assert "143 ms" in text[16]
    assert "143 ms cut out, and how busy the rank is in them" in text[18]
    assert "215 columns" in " ".join(text[18:])


def test_idle_in_what_is_cut_out_is_told() -> None:
    ideal = simulate(build("1f1b", 2, 600))
    late = np.where(ideal.start > 900 * MS, 10 * MS, 0)
    text = chart(replace(ideal, start=ideal.start + late, end=ideal.end + late), width=80, colour=False).plain
    assert text.count("⋯ 99%⋯") == 2


def test_where_tiles_have_no_room_a_cell_says_how_busy_it_is() -> None:
    text = chart(simulate(build("1f1b", 64, 256)), width=80, colour=False)
    assert lines(text)[0] == f"rank 0  FFFF▓{'.' * 9}▓{'█' * 42}{'▓' * 15}"
    assert "░▒▓█ how busy" in text.plain
    assert "order cannot be read at this" in text.plain
    assert "965 columns" in text.plain
    coloured = chart(simulate(build("1f1b", 64, 256)), width=80, colour=True)
    assert style_at(coloured, 0, 40) == MIXED.base
    assert style_at(coloured, 0, 78) == HUES[Group.B].base


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(("ranks", "microbatches"), [(4, 100), (8, 32), (8, 1000), (16, 32), (16, 64), (16, 1000)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
def test_a_chart_fits_a_screen(name: str, ranks: int, microbatches: int, width: int) -> None:
    timeline = simulate(build(name, ranks, microbatches))
    for colour, basic in ((False, False), (True, True), (True, False)):
        assert len(lines(chart(timeline, width=width, colour=colour, basic=basic))) < 40


def drawn(text: Text, timeline: Timeline) -> list[list[str]]:
    """What each rank's row says: its bands joined, split where it was cut."""
    gutter = len(f"rank {timeline.ranks - 1} ")
    rows: list[str] = [""] * timeline.ranks
    for line in lines(text):
        if re.match(r"rank +\d", line):
            rows[int(line[5:gutter])] += line[gutter:]
    return [re.split(r" ⋯ *\d+%⋯ ", row) for row in rows]


costs = st.integers(1, 40).map(lambda tenths: tenths * MS // 10)


@given(
    name=st.sampled_from(["gpipe", "1f1b", "zb-h1"]),
    ranks=st.integers(2, 12),
    microbatches=st.integers(1, 60),
    width=st.integers(24, 140),
    cost=st.one_of(st.just((MS, MS, MS)), st.tuples(costs, costs, costs)),
)
def test_letters_are_the_true_order_and_dots_the_true_idle(
    name: str, ranks: int, microbatches: int, width: int, cost: tuple[int, int, int]
) -> None:
    timeline = simulate(build(name, ranks, microbatches), Costs(default=StageCosts(*cost)))
    compute = [timeline.where((timeline.lane == Lane.COMPUTE) & (timeline.rank == rank)) for rank in range(ranks)]
    text = chart(timeline, width=width, colour=False)
    assert [len(line) for line in lines(text) if len(line) > width] == []
    layout = layout_of([timeline.where(timeline.lane == Lane.COMPUTE)], width - len(f"rank {ranks - 1} "), halves=False)
    if layout.overview:
        assert "order cannot be read" in text.plain.replace("\n", " ")
        for row, tiles in zip(drawn(text, timeline), compute, strict=True):
            busy = covered_fraction(tiles, 0, layout.step * len(row[0]), len(row[0]))
            for cell, share in zip(row[0], busy.tolist(), strict=True):
                assert (cell in "FBIW█") == (share >= 0.97)
                assert (cell == ".") == (share <= 0.03)
        return
    for row, tiles in zip(drawn(text, timeline), compute, strict=True):
        first, last = layout.cells(tiles.start), layout.cells(tiles.end)
        order = "".join(
            Kind(kind).name for kind, shown in zip(code_kind(tiles.code).tolist(), first < last, strict=True) if shown
        )
        read = ["".join(re.findall("[FBIW]", part)) for part in row]
        if len(row) == 1:
            assert read == [order]
        else:
            assert order.startswith(read[0])
            assert order.endswith(read[1])
        hidden = int((first == last).sum())
        assert ("too short" in text.plain) or len(row) > 1 or not hidden
        if len(row) == 1:
            # Both edges of a gap are drawn to half a cell.
            gaps = np.diff(np.concatenate([[0], np.column_stack([tiles.start, tiles.end]).ravel()]))[::2]
            idle = timeline.makespan - int((tiles.end - tiles.start).sum())
            assert abs(row[0].count(".") - idle / layout.step) <= np.count_nonzero(gaps) + 2


@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_no_shade_hides_idle_or_work(shares: list[float]) -> None:
    shades = _shades(np.array(shares))
    for shade, share in zip(shades, shares, strict=True):
        assert (shade == 4) == (share >= 0.97)
        assert (shade == 0) == (share <= 0.03)
    # What is neither is a mean over neighbours, and on the whole the truth.
    assert abs(np.mean(shades) / 4 - np.mean(shares)) < 0.25


@pytest.mark.parametrize("column", np.linspace(3.1, 9.1, 13))
def test_an_even_drain_has_no_beats(column: float) -> None:
    at = np.arange(60) * column
    # A backward of two, a gap of one.
    busy = np.diff(np.interp(np.append(at, at[-1] + column), np.arange(1000), np.cumsum(np.arange(1000) % 3 > 0)))
    assert len(set(_shades(busy / column)[2:-2])) == 1


def test_sixteen_colours_keep_the_letters() -> None:
    for ranks, microbatches in ((4, 8), (16, 64), (64, 256)):
        timeline = simulate(build("zb-h1", ranks, microbatches))
        plain, basic = (chart(timeline, width=80, colour=colour, basic=True) for colour in (False, True))
        rows = [[line for line in lines(text) if re.match(r"rank +\d", line)] for text in (plain, basic)]
        assert rows[0] == rows[1]
    basic = chart(simulate(build("zb-h1", 4, 8)), width=80, colour=True, basic=True)
    hues = {style_at(basic, 3, column).partition(" on ")[2] for column in range(7, 60)}
    assert {"blue", "yellow", "green"} <= hues
    assert not any("#" in str(span.style) for span in basic.spans)


def test_a_short_tile_among_long_ones_is_counted() -> None:
    costs = Costs(default=StageCosts(F=1_000_000, I=1_000_000, W=1_000))
    text = chart(simulate(build("zb-h1", 4, 8), costs), width=80, colour=False).plain
    assert "too short to be seen" in text


def test_waits_are_marked() -> None:
    timeline = simulate(build("1f1b", 4, 8), Costs(p2p=500_000))
    for colour in (False, True):
        text = chart(timeline, width=120, colour=colour).plain
        assert "~~" in text
        assert "waits for a receive" in text


def test_a_pair_shows_both_halves() -> None:
    pair = Pair(Action(Kind.F, 0, 5), Action(Kind.B, 0, 12))
    timeline = Timeline.from_tiles(1, [Tile(pair, 0, Lane.COMPUTE, 0, 8), Tile(pair, 0, Lane.COMPUTE, 8, 16)])
    text = chart(timeline, width=80, colour=False)
    assert "F5&B12" in text.plain
    assert "overlapped pair" in text.plain
    coloured = chart(timeline, width=80, colour=True)
    assert lines(coloured)[0].split()[2:4] == ["5", "12"]
    assert HUES[Group.F].alternate in style_at(coloured, 0, 8)
    assert HUES[Group.B].base in style_at(coloured, 0, 13)


def test_a_pair_with_room_is_joined_by_its_sign() -> None:
    text = chart(simulate(build("dualpipe", 4, 8)), width=80, colour=False)
    assert "F3&b5" in lines(text)[0]
    assert "&: overlapped pair" in text.plain


@pytest.mark.parametrize("width", [24, 40, 57, 80, 100, 150])
def test_the_legend_names_pairs_as_they_are_written(width: int) -> None:
    text = chart(simulate(build("dualpipe", 4, 16)), width=width, colour=False).plain
    rows = "".join(line for line in text.split("\n") if re.match(r"rank +\d", line))
    legend = text[text.index("F forward") :]
    if "how busy" not in legend:
        assert ("&" in rows) == ("&" in legend)
        assert "overlapped pair" in legend


def test_small_letters_are_the_second_chunk() -> None:
    text = chart(simulate(build("interleaved", 4, 8)), width=120, colour=False)
    assert lines(text)[0].startswith("rank 0 F0F1F2F3f0f1f2f3F4F5F6......b0- ")
    assert "capital letters: chunk 0 (stages 0–3); small: chunk 1 (stages 4–7)" in text.plain
    # The V: the last rank goes on with what it has just made.
    assert lines(chart(simulate(build("zbv", 4, 8)), width=80, colour=False))[3].startswith("rank 3 ...FfFfFfFf")
    assert "small" not in chart(simulate(build("zb-h1", 4, 8)), width=120, colour=False).plain


def test_shades_are_chunks_where_there_is_colour() -> None:
    text = chart(simulate(build("zbv", 4, 8)), width=80, colour=True)
    first, second = (style_at(text, 3, column).rpartition("on ")[2] for column in (10, 11))
    assert (first, second) == (HUES[Group.F].dark, shade_of(Group.F, 1, 2, False).fill)
    assert "dark to light: chunk 0 (stages 0–3), chunk 1 (stages 4–7)" in text.plain


def test_several_share_one_scale() -> None:
    schedule = build("zb-h1", 4, 8)
    slow = simulate(schedule, Costs(default=StageCosts(2_000_000, 2_000_000, 2_000_000)))
    rows = lines(charts([("ideal", simulate(schedule)), ("measured", slow.shifted(10**9))], width=120, colour=False))
    assert rows[0] == "ideal"
    assert rows[5] == "measured"
    assert len(rows[1].rstrip(".")) < len(rows[6].rstrip("."))
    assert rows[6].startswith("rank 0 F0")


def test_an_empty_timeline() -> None:
    assert "rank 1" in chart(Timeline.from_tiles(2, []), width=80, colour=False).plain


def test_actions_that_take_no_time_have_a_readable_axis() -> None:
    text = chart(simulate(build("1f1b", 2, 2), Costs(default=StageCosts(0, 0, 0))), width=80, colour=False).plain
    assert "|0 ms     |10 " in text
    assert "e-0" not in text


def test_replicas_beyond_the_first_are_not_mixed_in() -> None:
    tiles = [Tile(Action(Kind.F, 0, r), 0, Lane.COMPUTE, 0, 10, replica=r) for r in range(2)]
    assert "F1" not in chart(Timeline.from_tiles(1, tiles, replicas=2), width=80, colour=False).plain


def test_all_to_alls_stand_below_compute() -> None:
    schedule = expand_moe(build("1f1b", 2, 2), Overlap(MoeOrder.SERIAL))
    lines = chart(simulate(schedule), width=80, colour=False).plain.splitlines()
    assert [line[:7] for line in lines[:5]] == ["rank 0 ", "   a2a ", "rank 1 ", "   a2a ", "       "]
    # A forward is attn, dispatch, mlp, combine, one after the other.
    assert lines[0][7:].startswith("Fa..Fm..Fa..Fm..")
    assert lines[1][7:].startswith("..Fd..Fc..Fd..Fc")
    assert any("a2a: all-to-alls" in line for line in lines)
    assert "a2a" not in chart(simulate(build("1f1b", 2, 2)), width=60, colour=False).plain


@pytest.mark.parametrize("colour", [False, True])
def test_parts_have_letters(colour: bool) -> None:
    """Attention and mlp, dispatch and combine: before the microbatch, and alone where that has no room."""
    timeline = simulate(expand_moe(build("1f1b", 1, 2), Overlap(MoeOrder.SERIAL)))
    rows = lines(chart(timeline, width=120, colour=colour))
    kind = "" if colour else "F"
    assert re.findall(r"[a-zA-Z]+0", rows[0])[:2] == [f"{kind}a0", f"{kind}m0"]
    assert re.findall(r"[a-zA-Z]+0", rows[1])[:2] == [f"{kind}d0", f"{kind}c0"]
    assert "a attn, m mlp, d dispatch, c combine" in "\n".join(rows)
    narrow = lines(chart(timeline, width=60, colour=colour))
    assert re.findall(r"[a-zA-Z]+", narrow[0].removeprefix("rank 0"))[:2] == [f"{kind}a", f"{kind}m"]
