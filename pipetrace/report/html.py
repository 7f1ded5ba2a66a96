"""Pages that stand alone: everything inline, and a content policy that lets no request leave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetrace.trace.files import replacing

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# plotly.js compiles its WebGL shaders' callers with Function(), hence 'unsafe-eval'; nothing may be fetched.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A number in a table with a bar to its left, so that a column's shape is seen at a glance.

    Args:
        text: The number.
        share: Length of the bar, 0 to 1.
        hue: "f", "b", "i", "w", "idle", "hidden" or "exposed".
    """

    text: str
    share: float
    hue: str = "idle"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str | Bar]], *, note: str = "") -> str:
    """A table whose first column names the row; all text is escaped."""
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{escape(str(row[0]))}</th>' + "".join(_cell(cell) for cell in row[1:]) + "</tr>"
        for row in rows
    )
    small = f'<span class="note">{escape(note)}</span>' if note else ""
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}{small}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: str | Bar) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    share = min(max(cell.share, 0.0), 1.0)
    return f'<td class="bar {cell.hue}" style="--share:{share:.3f}">{escape(cell.text)}</td>'


def headline(figures: Sequence[tuple[str, str, str]]) -> str:
    """The figures that a page opens with: what it is, the figure, and what it is made of."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong><span>{escape(detail)}</span></dd></div>"
        for name, value, detail in figures
    )
    return f'<dl class="headline">{items}</dl>'


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """What the page's numbers were made from."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{items}</dl>' if items else ""


def section(name: str, heading: str, *content: str) -> str:
    """A section with a heading that can be linked to."""
    return (
        f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{escape(heading)}</h2>'
        f"{''.join(content)}</section>"
    )


def chart(name: str, figure: Figure, description: str, mode: str = "", note: str = "") -> str:
    """A chart, drawn when the page loads.

    Args:
        name: Its id on the page.
        figure: What is drawn.
        description: What it shows, for those who do not see it.
        mode: How it is drawn, said beneath it.
        note: How it is read, likewise.
    """
    drawn = f"Drawn as {mode}. Drag across to zoom, double-click for all." if mode else ""
    text = " ".join(part for part in (note, drawn) if part)
    said = f"<figcaption>{escape(text)}</figcaption>" if text else ""
    height = int(figure.layout.height or 400)
    return (
        f'<figure class="chart"><div id="{name}" class="plot" role="img" aria-label="{escape(description)}" '
        f'style="min-height:{height}px"></div>{said}</figure>'
        f'<script type="application/json" data-figure="{name}">{_inert(figure.to_json())}</script>'
    )


def data(name: str, value: Any) -> str:
    """Data for the page's own script, as JSON, once."""
    dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f'<script type="application/json" id="{name}">{_inert(dumped)}</script>'


def _inert(dumped: str) -> str:
    # Inside a JSON string only; elsewhere JSON has no such characters.
    return dumped.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def write_page(path: Path, title: str, subtitle: str, body: Sequence[str]) -> None:
    """Writes a page that needs nothing beside it.

    Args:
        path: Where to; replaced only by a whole page.
        title, subtitle: Plain text.
        body: HTML of the sections.

    Raises:
        OutputError: It cannot be written.
    """
    from plotly.offline import get_plotlyjs

    here = files("pipetrace.report")
    style, script = (here.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        '<meta name="color-scheme" content="light dark">\n<meta name="generator" content="pipetrace">\n',
        # An empty icon, or the browser asks for one.
        '<link rel="icon" href="data:,">\n',
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n",
        f'<header><h1>{escape(title)}</h1><p class="subtitle">{escape(subtitle)}</p></header>\n<main>\n',
        "<noscript><p>The charts and the sorting need JavaScript; it is in this file.</p></noscript>\n",
        *(f"{part}\n" for part in body),
        "</main>\n<footer><p>Made by pipetrace. This page stands alone: it fetches nothing.</p></footer>\n",
        f"<script>{get_plotlyjs()}</script>\n<script>\n{script}</script>\n</body>\n</html>\n",
    ]
    with replacing(path) as file:
        for part in parts:
            file.write(part.encode("utf-8", "replace"))
