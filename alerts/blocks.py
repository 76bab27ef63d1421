"""A page as a list of blocks, rendered as Markdown or HTML. Inline `code` is the only markup inside text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `anchor` must equal the anchor a Markdown host derives from `text`, so that links work in both forms."""

    level: int
    text: str

    @property
    def anchor(self) -> str:
        """Return the text in lower case, with hyphens for spaces and without punctuation."""
        return re.sub(r"[^\w\- ]", "", self.text.lower()).replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of the runbook."""

    text: str
    label: str = ""
    """Words in bold before the text."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list; a `numbered` one holds steps to take in order. An item may have a command below its text."""

    items: Sequence[tuple[str, str]]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Shell:
    """Lines to paste into a shell."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the runbook."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Links:
    """Link titles and URLs."""

    links: Sequence[tuple[str, str]]


Block = Heading | Paragraph | Items | Shell | Table | Links


def to_markdown(blocks: Iterable[Block]) -> str:
    """Render the page as Markdown that ends in a newline."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}"
        case Paragraph(text, label):
            return f"**{label}** {text}".rstrip() if label else text
        case Items(items, numbered):
            return "\n".join(_markdown_item(i, item, numbered) for i, item in enumerate(items, 1)).rstrip("\n")
        case Shell(text):
            return f"```sh\n{text}\n```"
        case Table(head, rows):
            lines = [head, ["---"] * len(head), *rows]
            return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        case Links(links):
            return " · ".join(f"[{title}]({url})" for title, url in links)


def _markdown_item(position: int, item: tuple[str, str], numbered: bool) -> str:
    text, command = item
    mark = f"{position}." if numbered else "-"
    if not command:
        return f"{mark} {text}"
    pad = " " * (len(mark) + 1)
    return f"{mark} {text}\n\n{pad}```sh\n{pad}{command}\n{pad}```\n"


def to_html(title: str, blocks: Iterable[Block]) -> str:
    """Render the page as one HTML document without external resources."""
    body = "\n".join(_html(block) for block in blocks)
    return _PAGE.replace("{title}", html.escape(title)).replace("{body}", body)


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f'<h{level} id="{block.anchor}">{_inline(text)}</h{level}>'
        case Paragraph(text, label):
            return f"<p>{f'<b>{_inline(label)}</b> ' if label else ''}{_inline(text)}</p>"
        case Items(items, numbered):
            tag = "ol" if numbered else "ul"
            return f"<{tag}>" + "".join(_html_item(item) for item in items) + f"</{tag}>"
        case Shell(text):
            return _pre(text)
        case Table(head, rows):
            first = "".join(f"<th>{_inline(cell)}</th>" for cell in head)
            rest = "".join("<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            return f"<table><thead><tr>{first}</tr></thead><tbody>{rest}</tbody></table>"
        case Links(links):
            return "<p>" + " · ".join(f'<a href="{html.escape(u)}">{html.escape(t)}</a>' for t, u in links) + "</p>"


def _html_item(item: tuple[str, str]) -> str:
    text, command = item
    return f"<li>{_inline(text)}{_pre(command) if command else ''}</li>"


def _pre(text: str) -> str:
    return f'<pre tabindex="0"><code>{html.escape(text)}</code></pre>'


def _inline(text: str) -> str:
    """Escape the text, and turn `code` and [text](#anchor) into elements."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(r"\[([^\]]+)\]\((#[\w-]+)\)", r'<a href="\2">\1</a>', escaped)


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h2 { margin-top: 3rem; border-top: 1px solid #8886; padding-top: 1rem; }
h2:target { background: light-dark(#fff3c4, #4a3d00); }
pre, table { overflow-wrap: normal; }
pre { overflow-x: auto; padding: .6rem .8rem; border-radius: 6px; background: light-dark(#f2f2f4, #222226); }
code { font-size: .9em; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
</style>
</head>
<body>
{body}
</body>
</html>
"""
