"""One trace file, served to the Perfetto UI from this machine until it was fetched.

Only 127.0.0.1 listens, only the one file is given out, and only pages of the UI's origin may read it. The hosted UI's
content policy lets it fetch from port 9001 and no other. A UI that lies on this machine is served beside the file, from
the same port, so that one forwarded port is enough.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes, urlsplit

from pipetrace.errors import OutputError, PipetraceError, TraceError
from pipetrace.shown import shown
from pipetrace.trace.formats import PERFETTO
from pipetrace.trace.local_ui import asset

HOSTED_UI = "https://ui.perfetto.dev"
HOSTED_PORT = 9001
_ADDRESS = "127.0.0.1"
_CHUNK = 1 << 20
_STALLED = 120.0  # s without a byte taken, after which a fetch counts as broken
_LONGEST = 1_000_000_000  # s; no system waits longer than some 292 years, and some not so long
_STARTS = (b"{", b"[", b"\x1f\x8b", b"\n")  # of JSON, gzip, and Perfetto's protobuf: field 1, a packet
_EXPAND = {"id": "dev.perfetto.ExpandTracksByRegex", "args": [".*"]}
# The tiles of the first ranks above each other, as papers draw them; more would fill the page.
_PIN = {"id": "dev.perfetto.PinTracksByRegex", "args": [r"^(replica 0 )?rank [0-7]( .*)? (compute|all-to-all)$"]}


def serve_once(
    path: Path,
    *,
    ui: str | Path = HOSTED_UI,
    port: int | None = None,
    open_browser: bool = True,
    timeout: float = 600.0,
    say: Callable[[str], None],
) -> None:
    """Serves a trace to the Perfetto UI and returns when the UI has it, or at Ctrl-C.

    Args:
        path: The trace.
        ui: Address of the UI, or the folder in which it lies on this machine: then it is served too, until Ctrl-C, as
            it loads its parts when they are used.
        port: On 127.0.0.1; 0 for any that is free. None for the only one that the hosted UI may fetch from, or for any
            that is free where `ui` is another.
        open_browser: Whether to open the UI too; where there is no desktop its address is only printed.
        timeout: s to wait for the file to be fetched.
        say: Prints a line.

    Raises:
        TraceError: The file is missing, empty, no file or cannot be read, or went away meanwhile.
        OutputError: The port cannot be had, the UI's address or the timeout is none, or nothing fetched the file in
            time.
    """
    # Also false for what is no number.
    if not 0 < timeout <= _LONGEST:
        raise OutputError(f"a timeout of {timeout:g} s", f"give seconds, above 0 and up to {_LONGEST:,}")
    _check(path)
    folder = ui if isinstance(ui, Path) else None
    root, origin = ("", "") if isinstance(ui, Path) else _parse_ui(ui)
    hosted = urlsplit(root).hostname == urlsplit(HOSTED_UI).hostname
    if port is None:
        port = HOSTED_PORT if hosted else 0
    server = _listen(path, origin, port, folder)
    root = root or server.origin
    with server:
        address = ui_address(root, path, server.server_port)
        if hosted and server.server_port != HOSTED_PORT:
            say(f"warning: the content policy of {HOSTED_UI} lets it fetch from port {HOSTED_PORT} only")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        fetched = False
        try:
            thread.start()
            # Ctrl-C may come as soon as this is said.
            say(f"open {address}")
            say(f"or drag {path} onto {root}")
            if open_browser:
                _open(address, server.server_port, say)
            fetched = server.ended.wait(timeout)
            if fetched and server.error is None and folder is not None:
                say(f"{path.name} was fetched; Ctrl-C ends serving the UI")
                threading.Event().wait()
        except KeyboardInterrupt:
            say("stopped" if fetched else "stopped; the file was not fetched")
            return
        finally:
            if thread.is_alive():  # one that never served would be waited for
                server.shutdown()
    if server.error is not None:
        raise server.error
    if not fetched:
        raise OutputError(f"nothing fetched {path} within {timeout:g} s", f"drag the file onto {root} instead")
    say(f"{path.name} was fetched; done")


def ui_address(root: str, path: Path, port: int) -> str:
    """The address at which the UI at `root` fetches a file that is served on `port`, and shows what matters.

    All tracks are expanded, and of Perfetto's own format compute lanes are pinned to the top. Of Chrome JSON they are
    not: the UI has two tracks for every thread, one of which stays empty, and would pin both.
    """
    trace = f"http://{_ADDRESS}:{port}/{quote(os.fsencode(path.name), safe='')}"
    own = path.name.lower().endswith(PERFETTO)
    commands = json.dumps([_EXPAND, _PIN] if own else [_EXPAND], separators=(",", ":"))
    # The UI decodes its arguments once, the server the path once more.
    return f"{root}/#!/?url={quote(trace, safe=':/')}&startupCommands={quote(commands, safe='')}"


def _check(path: Path) -> None:
    try:
        if path.is_dir():
            raise TraceError(f"{path} is a folder", "give one trace file")
        with path.open("rb") as file:
            head = file.read(4096).removeprefix(b"\xef\xbb\xbf")
        if not head:
            raise TraceError(f"{path} is empty", "the run or the command that wrote it did not finish")
        if head.lstrip().lower().startswith((b"<!doctype", b"<html")):
            raise TraceError(f"{path} is a page, no trace", "open it in a browser; traces end in .pftrace or .json")
        if not head.startswith(_STARTS) and not head.lstrip().startswith(_STARTS):
            raise TraceError(
                f"{path} is no trace: it begins like neither JSON nor gzip nor Perfetto's own format",
                "give a trace, as `pipetrace gen -o x.pftrace` writes one",
            )
        if not path.is_file():
            raise TraceError(f"{path} is no regular file", "write it to a file first")
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise TraceError(f"{path} cannot be read: {reason}") from None


def _parse_ui(ui: str) -> tuple[str, str]:
    """The UI's address without a fragment or a slash at its end, and its origin."""
    try:
        parts = urlsplit(ui)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        good = False
    if not good:
        raise OutputError(f"{shown(ui)} is no address of a UI", f"give one like {HOSTED_UI}")
    host = parts.netloc.rpartition("@")[2].lower()
    # Browsers leave a scheme's own port out of the origin.
    host = host.removesuffix(":443" if parts.scheme == "https" else ":80")
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}", f"{parts.scheme}://{host}"


def _listen(path: Path, origin: str, port: int, folder: Path | None) -> _Server:
    try:
        return _Server(path, origin, port, folder)
    except (OSError, OverflowError) as error:
        if isinstance(error, OverflowError):
            raise OutputError(f"port {shown(port)} is outside 1 ... 65535", "give a free one") from None
        reason = error.strerror
        raise OutputError(
            f"port {port} on {_ADDRESS} cannot be had: {reason}",
            "end what holds it, perhaps another `pipetrace open`; --port N takes another, "
            f"but the content policy of {HOSTED_UI} lets only {HOSTED_PORT} through",
        ) from None


def _open(address: str, port: int, say: Callable[[str], None]) -> None:
    # Without a desktop Python falls back to browsers that run in this terminal, and cannot show the UI.
    variables = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
    if sys.platform.startswith("linux") and not any(map(os.environ.get, variables)):
        say(f"no desktop here; from your own machine: ssh -L {port}:{_ADDRESS}:{port} {socket.gethostname()}")
        return
    try:
        opened = webbrowser.open(address)
    except (webbrowser.Error, OSError):
        opened = False
    if not opened:
        say("no browser could be opened; open the address by hand")


class _Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1 and remembers whether the file was fetched."""

    # On Windows this would let two programs have one port.
    allow_reuse_address = os.name != "nt"

    def __init__(self, path: Path, origin: str, port: int, folder: Path | None) -> None:
        self.path, self.folder = path, folder
        self.ended = threading.Event()
        self.error: PipetraceError | None = None
        super().__init__((_ADDRESS, port), _Handler)
        self.origin = origin or f"http://{_ADDRESS}:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that breaks is the client's affair; the next one is served."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _STALLED

    def do_GET(self) -> None:
        if self._refused():
            return
        if not self._asks_for_trace():
            self._give_asset()
            return
        try:
            file = self.server.path.open("rb")
        except OSError as error:
            self._answer(HTTPStatus.NOT_FOUND)
            self.server.error = TraceError(f"{self.server.path} went away while it was served: {error.strerror}")
            self.server.ended.set()
            return
        with file:
            left = os.fstat(file.fileno()).st_size
            self._answer(HTTPStatus.OK, left)
            while left and (chunk := file.read(min(left, _CHUNK))):
                self.wfile.write(chunk)
                left -= len(chunk)
        if left:
            # The answer is short of its promised length, which the client sees; it cannot be mended.
            self.server.error = TraceError(f"{self.server.path} became shorter while it was served", "open it again")
            self.server.ended.set()
        elif self._taken():
            self.server.ended.set()

    def _give_asset(self) -> None:
        """Answers with a file of the UI, where there is one here."""
        found = asset(self.server.folder, self.path) if self.server.folder is not None else None
        try:
            data = found[0].read_bytes() if found is not None else None
        except OSError:
            data = None
        if data is None or found is None:
            self._answer(HTTPStatus.NOT_FOUND)
            return
        self._answer(HTTPStatus.OK, len(data), found[1])
        self.wfile.write(data)

    def do_HEAD(self) -> None:
        if not self._refused():
            try:
                self._answer(HTTPStatus.OK, self.server.path.stat().st_size)
            except OSError:
                self._answer(HTTPStatus.NOT_FOUND)

    def do_OPTIONS(self) -> None:
        if not self._refused():
            self._answer(HTTPStatus.NO_CONTENT)

    def do_POST(self) -> None:
        """The UI asks `/status` first, whether a trace processor listens here; none does."""
        with_body = self.headers.get("Content-Length", "")
        if with_body.isdecimal():
            # Unread bytes would reset the connection before the answer was read.
            self.rfile.read(min(int(with_body), _CHUNK))
        self._answer(HTTPStatus.NOT_FOUND if self._may_ask() else HTTPStatus.FORBIDDEN)

    do_PUT = do_DELETE = do_PATCH = do_POST

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Says nothing: what matters is said by `serve_once`."""

    def _refused(self) -> bool:
        """Whether the request was turned down, and answered."""
        if not self._may_ask():
            self._answer(HTTPStatus.FORBIDDEN)
            return True
        if not self._asks_for_trace() and (self.server.folder is None or self.command != "GET"):
            self._answer(HTTPStatus.NOT_FOUND)
            return True
        return False

    def _asks_for_trace(self) -> bool:
        return unquote_to_bytes(self.path.partition("?")[0]) == b"/" + os.fsencode(self.server.path.name)

    def _may_ask(self) -> bool:
        # A page elsewhere whose name was made to resolve to this machine still sends its own name as host.
        port = self.server.server_port
        if self.headers.get("Host", "").lower() not in (f"{_ADDRESS}:{port}", f"localhost:{port}"):
            return False
        origin = self.headers.get("Origin")
        if origin is None:
            # No page's script asks; unless it is another site's image or the like, which could only use up the file.
            return self.headers.get("Sec-Fetch-Site") in (None, "none", "same-origin")
        return origin.lower() in (self.server.origin, f"http://{_ADDRESS}:{port}")

    def _answer(self, status: HTTPStatus, length: int = 0, kind: str = "application/octet-stream") -> None:
        self.send_response(status)
        headers = {
            "Access-Control-Allow-Origin": self.server.origin,
            "Vary": "Origin",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
        }
        if self.command == "OPTIONS":
            headers |= {
                "Access-Control-Allow-Methods": "GET, HEAD, OPTIONS",
                "Access-Control-Allow-Headers": self.headers.get("Access-Control-Request-Headers") or "*",
                # Chromium asks this of a public page that reads from the local machine.
                "Access-Control-Allow-Private-Network": "true",
            }
        if status is not HTTPStatus.NO_CONTENT:
            headers |= {"Content-Type": kind, "Content-Length": str(length)}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _taken(self) -> bool:
        """Whether the client took all that was written: it closes its side rather than resetting it."""
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(_CHUNK):
                pass
        except OSError:
            return False
        return True
