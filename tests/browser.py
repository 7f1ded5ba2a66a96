"""A headless Chromium for tests that look at what people see.

Use it as `chromium = browser.chromium` in a test module, and mark the tests with `@pytest.mark.browser`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


HANGS_MS = 120_000
"""After so long something hangs, even on a busy machine."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for the tests of a module; closed after them, as its event loop is in the way of others."""
    executable = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    if executable is None:
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS, timeout=HANGS_MS)
        yield browser
        browser.close()


class Watched:
    """A page whose requests and errors are kept; nothing it asks for leaves this machine."""

    def __init__(self, browser: Browser, *, scheme: str = "light", width: int = 1400, height: int = 1000) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.away: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
        )
        self.context.set_default_timeout(HANGS_MS)
        self.page: Page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.context.route("**/*", self._route)

    def _route(self, route: Route) -> None:
        parts = urlsplit(route.request.url)
        if parts.scheme in ("file", "data", "blob") or parts.hostname == "127.0.0.1":
            route.continue_()
        else:
            self.away.append(route.request.url)
            route.abort()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
