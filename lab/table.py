"""Format rows as a table for people."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

CRITERIA = (
    "false_criticals", "blamed_healthy", "detected_in_time", "lost_signals", "ok_while_dead", "depth", "age_violations",
    "not_exact", "dead_age", "tracked",
)  # fmt: skip


def columns(rows: Sequence[Sequence[object]], headings: Sequence[str]) -> str:
    """Format values under headings, each column as wide as its widest value."""
    texts = [list(headings), *([_text(value) for value in row] for row in rows)]
    widths = [max(len(row[n]) for row in texts) for n in range(len(headings))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in texts)


def matrix_summary(rows: Sequence[Row]) -> str:
    """Show how many cells break each criterion, by basis."""
    by_basis: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_basis[row["basis"]].append(row)
    lines = []
    for basis, mine in by_basis.items():
        broken = Counter(name for row in mine for name in row["broken"])
        lines.append([basis, len(mine), sum(1 for row in mine if not row["broken"]), *(broken[c] or "." for c in CRITERIA)])
    return columns(lines, ["basis", "cells", "hold", *CRITERIA])


def matrix_cells(rows: Sequence[Row]) -> str:
    """Show one line per cell."""
    lines = []
    for row in rows:
        depth = f"{row['depth_wrong']} (absent {row['depth_absent']}, worst {row['depth_worst_ratio']})"
        ages = f"{row['age_violations']} (+{row['age_worst_excess_s']} s)"
        lines.append(
            [
                f"{row['scenario']}/{row['kind']}",
                f"{row['basis']}/{row['counts']}",
                " ".join(row["broken"]) or "holds",
                ",".join((*row["false_criticals"], *row["blamed_healthy"])) or ".",
                row["detected_after_s"],
                row["ok_while_dead"],
                depth if row["depth_wrong"] else ".",
                ages if row["age_violations"] else ".",
                row["not_exact"] or ".",
                row["dead_age_ratio"],
                f"{row['tracked_most']}/{row['tracked_bound']}",
                "→".join(row["bases"]) or ".",
            ]
        )
    headings = ["scenario", "telemetry", "broken", "false critical", "detected s", "ok dead", "depth wrong", "age too high"]
    return columns(lines, [*headings, "not exact", "dead age", "tracked", "basis"])


def incidents(rows: Sequence[Row]) -> str:
    """Show one line per incident or healthy run."""
    lines = []
    for row in rows:
        criticals = " ".join(f"{name}×{n}" for name, n in row["criticals"].items())
        warnings = " ".join(f"{name}×{n}" for name, n in row["warnings"].items())
        detected = [
            row.get(name) for name in ("signal", "detectable_after_s", "detected_after_fault_s", "detected_after_s", "within_s")
        ]
        named = {True: "yes", False: "no", None: None}[row.get("culprit_named")]
        loud = [row["announced"], row["notifications"], row["folded"], criticals or ".", warnings or "."]
        lines.append(
            [f"{row['scenario']}/{row['kind']}", row["seed"], " ".join(row["broken"]) or "holds", *detected, named, *loud]
        )
    headings = ["scenario", "seed", "broken", "signal", "detectable s", "detected s", "beyond", "aim", "culprit", "announced"]
    return columns(lines, [*headings, "notifications", "folded", "critical", "warning"])


def detection(rows: Sequence[Row]) -> str:
    """Show one line per rule."""
    lines = []
    for r in rows:
        shares = [None if r[n] is None else f"{r[n]:.2f}" for n in ("recall", "precision", "precision_per_fault")]
        seconds = [None if r[n] is None else f"{r[n]:.0f}" for n in ("median_s", "p95_s")]
        ratio = None if r["ratio"] is None else f"{r['ratio']:.1f} of {r['ratios']}"
        pages = None if r["pages_per_1000_days"] is None else f"{r['pages_per_1000_days']:.0f}"
        named = "-" if r["culprit"] is None else f"{r['culprit']:.2f} of {r['culprits']}"
        lines.append([r["rule"], r["faults"], *shares, *seconds, ratio, named, r["false_pages"], f"{r['quiet_days']:.1f}", pages])
    headings = [
        "rule",
        "faults",
        "recall",
        "precision",
        "per fault",
        "median s",
        "p95 s",
        "× minimum",
        "culprit named",
        "false pages",
        "quiet days",
    ]
    return columns(lines, [*headings, "pages/1,000 days"])


def markdown(rows: Sequence[Row]) -> str:
    """Format the same as a Markdown table."""
    widths = detection(rows).splitlines()
    cells = [[cell.strip() for cell in re.split(r"  +", line)] for line in widths]
    return "\n".join(f"| {' | '.join(line)} |" for line in (cells[0], ["---"] * len(cells[0]), *cells[1:]))


def misses(rows: Sequence[Row], rule: str) -> str:
    """List the runs in which a rule missed the fault, named the wrong culprit, or raised a false alarm."""
    lines = []
    for r in rows:
        if r["rule"] != rule or r["limit_s"] is not None:
            continue
        wrong = ["missed"] if r["fault"] and r["detected_s"] is None else []
        wrong += ["culprit"] if r["culprit"] is False else []
        wrong += [f"{r['false']} false, {r['false_pages']} pages"] if r["false"] else []
        if wrong:
            lines.append([f"{r['scenario']}/{r['kind']}", r["seed"], "; ".join(wrong)])
    return columns(lines, ["scenario", "seed", rule]) if lines else f"{rule}: every fault detected, and nothing else"


def _text(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
