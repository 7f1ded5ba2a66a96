"""Commands of these tests run in forks of one process; see `warm`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli import command
from tests.cli.warm import Warm


@pytest.fixture(scope="package", autouse=True)
def warm() -> Iterator[None]:
    """The process, ended before tests of other folders look at which processes there are."""
    command.warm = Warm()
    yield
    command.warm.end()
    command.warm = None
