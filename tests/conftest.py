"""Shared by all tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Shared machines are too noisy for a time limit on each example, or on making them.
settings.register_profile("pipetrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pipetrace")

# What a shell starts in the background ignores Ctrl-C, and so would every command that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signals_are_left_as_they_were() -> Iterator[None]:
    """What a test leaves ignored, or handled, the processes that later tests fork would ignore, or handle, too."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes a skip a failure where PIPETRACE_NO_SKIPS is set: in CI everything that a test needs is installed."""
    report = yield
    if report.skipped and os.environ.get("PIPETRACE_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and PIPETRACE_NO_SKIPS is set: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a whole module that skips itself while it is collected."""
    report = yield
    if report.skipped and os.environ.get("PIPETRACE_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped, and PIPETRACE_NO_SKIPS is set: {report.longrepr}"
    return report
