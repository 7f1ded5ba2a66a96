"""The commands in README.md and docs/ run, and print what the page says they print."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(page: Path) -> list[tuple[str, str]]:
    """(command, what it prints) of every `$ pipetrace` or `$ python` line in a page's console blocks, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command.strip(), output))
    return found


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).is_file(), f"{page.name} links to {target}"


def files(page: Path) -> list[tuple[str, str]]:
    """(name, content) of every block that begins with `# file: NAME`; the commands of the page find them."""
    return re.findall(r"```(?:python|toml)\n# file: (\S+)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_of_a_page(page: Path, tmp_path: Path) -> None:
    environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    checker = doctest.OutputChecker()
    for name, content in files(page):
        (tmp_path / name).write_text(content, encoding="utf-8")
    for command, expected in commands(page):
        program, *arguments = shlex.split(command, comments=True)
        assert program in ("pipetrace", "python"), f"{command!r} is no command of pipetrace's"
        if arguments[0] == "open":  # waits for a browser; tests/trace/test_serve.py opens traces
            continue
        ran = subprocess.run(
            [sys.executable, *(["-m", "pipetrace"] if program == "pipetrace" else []), *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}"
        if expected:
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            assert checker.check_output(expected, ran.stdout, flags), f"{command} printed\n{ran.stdout}"
