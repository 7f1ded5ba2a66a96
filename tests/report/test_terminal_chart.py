"""The tile chart in a terminal."""

from __future__ import annotations

import pytest
from rich.text import Text

from pipetrace import Action, Costs, Kind, Pair, StageCosts, build, simulate
from pipetrace.report.colours import HUES, Group
from pipetrace.report.terminal_chart import chart, charts
from pipetrace.timeline import Lane, Tile, Timeline


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
    rows = [line for line in lines(text) if line.startswith("rank")]
    assert len(rows) == ranks
    assert len({len(row) for row in rows}) == 1


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


def test_tiles_narrower_than_a_cell_are_shown_by_the_most_and_said() -> None:
    timeline = simulate(build("zb-h1", 8, 32))
    plain = chart(timeline, width=80, colour=False).plain
    assert "a cell is 1.411 ms: it shows what fills most of it" in plain
    assert set(lines(chart(timeline, width=80, colour=False))[0][7:]) <= set("FIW.")
    coloured = chart(timeline, width=80, colour=True).plain
    assert "half a cell is 0.705 ms" in coloured
    assert "▌" in coloured


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
    assert "F5B12" in text.plain
    assert "overlapped pair" in text.plain
    coloured = chart(timeline, width=80, colour=True)
    assert lines(coloured)[0].split()[2:4] == ["5", "12"]
    assert HUES[Group.F].alternate in style_at(coloured, 0, 8)
    assert HUES[Group.B].base in style_at(coloured, 0, 13)


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


def test_replicas_beyond_the_first_are_not_mixed_in() -> None:
    tiles = [Tile(Action(Kind.F, 0, r), 0, Lane.COMPUTE, 0, 10, replica=r) for r in range(2)]
    assert "F1" not in chart(Timeline.from_tiles(1, tiles, replicas=2), width=80, colour=False).plain
