from __future__ import annotations

from pathlib import Path

from pipetrace.execute.output import RankOutput, log_name, without_marks


def test_lines_are_shown_once_when_they_are_whole(tmp_path: Path) -> None:
    output = RankOutput(tmp_path, 3)
    assert list(output.new_lines(whole=True)) == []
    first, last = (tmp_path / log_name(rank) for rank in (0, 2))
    first.write_text("loss 1\nlos")
    last.write_bytes(b"USDT: 1\nhere\r\n\n\xff\n")
    assert list(output.new_lines(whole=True)) == ["rank 0: loss 1", "rank 2: here", "rank 2: \N{REPLACEMENT CHARACTER}"]
    with first.open("a") as file:
        file.write("s 2\nend")
    assert list(output.new_lines(whole=True)) == ["rank 0: loss 2"]
    assert list(output.new_lines(whole=False)) == ["rank 0: end"]
    assert list(output.new_lines(whole=False)) == []


def test_the_profiler_s_marks_are_left_out() -> None:
    assert without_marks("a\nUSDT: x\nb") == "a\nb"
