"""The module of `--stages` is looked for before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import pipetrace
from pipetrace.errors import RunError
from pipetrace.execute.config import RunConfig
from pipetrace.execute.own_path import look_for
from pipetrace.execute.runner import run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is not on Python's path, as a user stands in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in ("flat.py", "package/__init__.py", "package/inner.py", "no_init/inner.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise ValueError('is not to be imported')\n")
    return tmp_path


@pytest.mark.parametrize(
    "path", ["flat:make", "package:make", "package.inner:make", "no_init.inner:make", "json.decoder:x", "sys:x"]
)
def test_what_is_there_is_found_and_not_imported(path: str, here: Path) -> None:
    look_for(path)
    assert not {"flat", "package"} & set(sys.modules)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nomod:make", "there is no module nomod (run where it can be imported, or set PYTHONPATH)"),
        ("nomod.inner:make", "there is no module nomod ("),
        ("package.outer:make", "there is no module package.outer ("),
        ("flat.inner:make", "there is no module flat.inner ("),
        ("flat.py:make", "names no function (write package.module:function, without .py)"),
        ("a/flat:make", "names no function"),
        ("flat", "names no function"),
        ("flat:", "names no function"),
        (":make", "names no function"),
        ("package..inner:make", "names no function"),
    ],
)
def test_what_is_not_there_is_told_before_a_rank_is_started(path: str, says: str, here: Path) -> None:
    said: list[str] = []
    with pytest.raises(RunError) as caught:
        run(pipetrace.build("1f1b", 2, 2), RunConfig("own", stages=path), here / "RUN", said.append)
    assert says in f"{caught.value.message} ({caught.value.hint})"
    assert said == []
    assert not (here / "RUN").exists()
