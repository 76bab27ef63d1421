"""The charts of a comparison: how many faults are detected by when, and misses against false alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.detect.compare import figures, trade
from sinks import svg
from sinks.explain.formatting import duration

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 500, 36, 320
FIRST_S, LAST_S = 10.0, 3600.0
FEWEST, MOST = 0.1, 100.0
"""False alarms per queue-day at the ends of the axis; lower values are drawn at its start."""

MARKED_S = (15.0, 60.0, 300.0, 900.0)
"""Thresholds labelled beside their point."""

Rows = Sequence[Mapping[str, Any]]


def write_pictures(rows: Rows, folder: Path) -> None:
    """Write both charts for the SQS queues among the rows: every rule but ActiveMQ's applies to them."""
    folder.mkdir(parents=True, exist_ok=True)
    sqs = [row for row in rows if row["system"] == "aws_sqs"]
    (folder / "detection-time.svg").write_text(time_to_detect(sqs) + "\n", encoding="utf-8")
    (folder / "detection-thresholds.svg").write_text(thresholds(sqs) + "\n", encoding="utf-8")


def time_to_detect(rows: Rows) -> str:
    """Draw, for each rule, the share of all faults detected by a time after they began."""
    plain = [r for r in rows if r["limit_s"] is None and r["fault"] is not None]
    ticks = tuple((s, duration(s)) for s in (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0))
    x = svg.Axis(FIRST_S, LAST_S, LEFT, RIGHT, ticks, logarithmic=True)
    lines = []
    every = len({(r["scenario"], r["kind"], r["seed"]) for r in plain})
    for colour, name in enumerate(dict.fromkeys(r["rule"] for r in plain)):
        mine = [r for r in plain if r["rule"] == name]
        seconds = sorted(r["detected_s"] for r in mine if r["detected_s"] is not None)
        points: list[svg.Point] = [(FIRST_S, 0.0)]
        points += [(max(s, FIRST_S), n / every) for n, s in enumerate(seconds, start=1)]
        points.append((LAST_S, len(seconds) / every))
        lines.append(svg.Line(name, points, colour, dashed="name" in name, stepped=True))
    parts = svg.plot(lines, x, _shares())
    parts += svg.legend([(line.name, line.colour) for line in lines], RIGHT + 16, TOP + 12, 20)
    parts += svg.label("time since the fault began", (LEFT + RIGHT) / 2, BOTTOM + 38, "middle")
    parts += svg.label("share of all faults that were detected", LEFT - 50, TOP - 18)
    return svg.picture(parts, WIDTH, HEIGHT, "Share of faults detected by each rule, by time since the fault", alone=True)


def thresholds(rows: Rows) -> str:
    """Draw age thresholds as a curve, and the other rules as points."""
    ticks = ((0.1, "0.1 or fewer"), (1.0, "1"), (10.0, "10"), (100.0, "100"))
    x, y = svg.Axis(FEWEST, MOST, LEFT, RIGHT, ticks, logarithmic=True), _shares()
    lines, parts = [], ""
    for colour, (name, points) in enumerate(trade(rows).items(), start=2):
        lines.append(svg.Line(f"{name}, 15 s to 30 min", [(_held(p["alarms_per_day"]), p["recall"]) for p in points], colour))
        for p in points:
            at_x, at_y = x.px(_held(p["alarms_per_day"])), y.px(p["recall"])
            parts += f'<circle class="dot c{colour}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="2.5"/>'
            if p["limit_s"] in MARKED_S:
                parts += svg.label(duration(p["limit_s"]), at_x + 5, at_y + 13)
    names = [(line.name, line.colour) for line in lines]
    for n, name in enumerate(dict.fromkeys(r["rule"] for r in rows if r["limit_s"] is None and "age" not in r["rule"])):
        mine = [r for r in rows if r["rule"] == name and r["limit_s"] is None]
        found, colour = figures(mine), (0, 1, 4, 5, 6, 7)[n % 6]
        if "name" in name or found["recall"] is None:
            continue
        alarms = sum(r["false"] for r in mine) / found["quiet_days"] if found["quiet_days"] else 0.0
        parts += f'<circle class="dot c{colour}" cx="{x.px(_held(alarms)):.1f}" cy="{y.px(found["recall"]):.1f}" r="6"/>'
        names.append((name, colour))
    parts = svg.plot(lines, x, y) + parts + svg.legend(names, RIGHT + 16, TOP + 12, 20)
    parts += svg.label("false alarms a queue-day", (LEFT + RIGHT) / 2, BOTTOM + 38, "middle")
    parts += svg.label("share of all faults that were detected", LEFT - 50, TOP - 18)
    return svg.picture(parts, WIDTH, HEIGHT, "Recall against false alarms, for thresholds of age and the other rules", alone=True)


def _shares() -> svg.Axis:
    return svg.Axis(0.0, 1.0, BOTTOM, TOP, tuple((n / 4, f"{25 * n} %") for n in range(5)))


def _held(alarms_per_day: float) -> float:
    return min(max(alarms_per_day, FEWEST), MOST)
