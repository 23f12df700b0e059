"""A page of HTML that needs nothing else: its style, and the few parts that pages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """
:root { --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --paper: #fff; --card: #f6f8fa;
  --curve: #0969da; --goal: #bc4c00; color-scheme: light dark }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --paper: #0d1117; --card: #151b23; --curve: #58a6ff; --goal: #f0883e } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1120px; margin: 0 auto; padding: 1.5rem }
h1 { margin: 0 } h2 { margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line) }
h3 { margin: .4rem 0; font-size: 1rem } p, li { max-width: 75ch } .soft { color: var(--soft) }
.row { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)) }
.facts { grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)) }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .9rem; overflow-x: auto }
.fact { font-size: 1.5rem; font-weight: 600 }
table { border-collapse: collapse; width: 100%; font-size: .85rem }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line) } td { overflow-wrap: anywhere }
th:first-child, td:first-child { white-space: nowrap }
.columns { columns: 3 320px; column-gap: 1rem }
.columns > * { break-inside: avoid; margin: 0 0 1rem }
code, pre { font: .85rem/1.5 ui-monospace, monospace } pre { white-space: pre-wrap }
svg { width: 100%; font: 10px system-ui, sans-serif } img { max-width: 100%; border-radius: 4px }
.title { font-size: 12px; font-weight: 600; fill: var(--ink) } .label { fill: var(--soft) }
.grid { stroke: var(--line) } .axis { stroke: var(--soft) } .end { fill: var(--curve) }
.curve { fill: none; stroke: var(--curve); stroke-width: 1.6; stroke-linejoin: round }
.goal { stroke: var(--goal); stroke-dasharray: 4 3 }
"""


def document(title: str, body: str) -> str:
    """Return a page; it is well-formed XML too, so that any parser can check it."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8" />'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>{body}</body></html>\n"
    )


def card(content: str) -> str:
    """Return a frame around HTML."""
    return f'<div class="card">{content}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of plain texts."""
    top = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = [f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows]
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
