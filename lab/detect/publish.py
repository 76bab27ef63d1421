"""Publish a comparison: its figures as JSON, its tables in the page about detection, and its pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.detect.compare import HELD_OUT, summary, trade
from lab.detect.pictures import write_pictures
from lab.detect.score import too_early
from lab.table import markdown

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "detection.json"
PAGE = DOCS / "detection.md"
BEGIN, END = "<!-- tables: python -m lab publish -->\n", "<!-- end of tables -->"

Document = Mapping[str, Any]


def document(measured: Document, date: str, commit: str) -> Document:
    """Return what is kept of the file that `detect --json` writes: the rows of swept thresholds only as their trade-off."""
    rows, seeds = measured["rows"], measured["seeds"]
    by_seed = {seed: [row for row in rows if row["seed"] == seed] for seed in seeds}
    return {
        "command": measured["command"],
        "date": date,
        "commit": commit,
        "basis": measured["basis"],
        "seeds": [seed for seed in seeds if seed not in HELD_OUT],
        "held_out": [seed for seed in seeds if seed in HELD_OUT],
        "summary": {str(seed): summary(mine) for seed, mine in by_seed.items()},
        "trade": {str(seeds[0]): trade(by_seed[seeds[0]])},
        "rows": [{k: v for k, v in row.items() if k != "limit_s"} for row in rows if row["limit_s"] is None],
    }


def encoded(published: Document) -> str:
    """Return the JSON, with one line per row."""
    head = json.dumps({name: value for name, value in published.items() if name != "rows"}, indent=1)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in published["rows"])
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def page(text: str, published: Document) -> str:
    """Return the page with these tables."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + tables(published) + rest[rest.index(END) :]


def tables(published: Document) -> str:
    """Return a table of all rules for each seed, and of queuewatch's rows only for those that are held out."""
    parts = [f"Run on {published['date']} at commit `{published['commit']}`: `{published['command']}`."]
    for seed in (*published["seeds"], *published["held_out"]):
        rows = published["summary"][str(seed)]
        runs = {(row["scenario"], row["kind"]): row["fault"] for row in published["rows"] if row["seed"] == seed}
        faults = sum(fault is not None for fault in runs.values())
        parts.append(
            f"Seed {seed}{', held out' if seed in published['held_out'] else ''}: {len(runs)} runs, "
            f"{faults} faults and {len(runs) - faults} healthy queues."
        )
        shown = [row for row in rows if seed not in published["held_out"] or row["rule"].startswith("queuewatch")]
        parts.append(markdown(shown))
    return "\n" + "\n\n".join(parts) + "\n\n"


def publish(measured: Document, date: str, commit: str) -> None:
    """Write all three. The pictures show the first seed.

    Raises ValueError if a rule detected a fault before it could be distinguished from health. The lowest of the limits that are
    tried do by chance.
    """
    early = too_early(row for row in measured["rows"] if row["limit_s"] is None)
    if early:
        raise ValueError(f"{len(early)} faults were detected before it was possible, the first in {early[0]}")
    published = document(measured, date, commit)
    FIGURES.write_text(encoded(published), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), published), encoding="utf-8")
    write_pictures([row for row in measured["rows"] if row["seed"] == measured["seeds"][0]], DOCS / "images")
