"""`python scripts/age_experiment.py [--check]`: replays the experiment of docs/sqs.md with four definitions of age.

Three scenarios follow an experiment on ApproximateAgeOfOldestMessage (abicky.net, 21 May 2020): a message that is received
every two minutes and never deleted, alone; the same together with good messages; and without a redrive policy. Writes the
chart and the tables; `--check` only checks whether they are up to date.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from streaming.core.settings import Settings  # noqa: E402 -- run as a script, it must find the project first
from streaming.replay.command import run_replay  # noqa: E402
from streaming.replay.run import local_engine  # noqa: E402

PICTURE, TABLES = ROOT / "docs" / "images" / "ages.svg", ROOT / "docs" / "sqs-ages.md"
T0 = 1_700_000_000_000
VISIBILITY_S, MINUTES = 120, 30
SCOPES = ("all", "visible", "cloudwatch", "healthy")
COLOURS = {"all": "#b3402a", "visible": "#2a6fb3", "cloudwatch": "#c98a00", "healthy": "#2f8f4e"}
Series = dict[str, dict[int, float]]


def event(type_: str, at_s: int, **fields: Any) -> dict[str, Any]:
    """Return a wire event at `at_s` seconds of the experiment."""
    return {"v": 1, "type": type_, "at": T0 + at_s * 1000, "system": "aws_sqs", "queue": "orders", **fields}


def life(*, receives: int, max_receives: int | None, good_messages: bool) -> list[dict[str, Any]]:
    """Return events of a poison message received whenever its window ends, with or without a good message each minute."""
    state: dict[str, Any] = {"kind": "standard", "visibility_timeout_s": VISIBILITY_S}
    if max_receives:
        state |= {"max_receive_count": max_receives, "dead_letter_queue": "orders-dlq"}
    events = [event("queue_state", 0, attributes=state), event("sent", 0, message_id="poison")]
    for n in range(receives):
        events.append(event("received", n * VISIBILITY_S, message_id="poison", receive_count=n + 1))
    if max_receives:
        events.append(event("dead_lettered", receives * VISIBILITY_S, message_id="poison", to_queue="orders-dlq"))
    if good_messages:
        for minute in range(MINUTES):
            about = {"message_id": f"good-{minute}"}
            events += [event("sent", 60 * minute + 30, **about), event("received", 60 * minute + 50, receive_count=1, **about)]
            events.append(event("deleted", 60 * minute + 61, **about))
    return sorted(events, key=lambda e: e["at"])


LIVES = {
    "Alone, maxReceiveCount 6": life(receives=6, max_receives=6, good_messages=False),
    "Beside good messages, maxReceiveCount 6": life(receives=6, max_receives=6, good_messages=True),
    "No redrive policy": life(receives=15, max_receives=None, good_messages=False),
}


def ages_min(events: Sequence[dict[str, Any]], queue: str) -> Series:
    """Return the age in minutes at every minute for each scope, from a replay."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.ndjson"
        path.write_text("".join(json.dumps(e) + "\n" for e in events))
        until = str(T0 + MINUTES * 60_000)
        run_replay([path], every="60s", until=until, settings=Settings(), engine=local_engine, strict=True, out=out, err=err)
    series: Series = {scope: {} for scope in SCOPES}
    for line in map(json.loads, out.getvalue().splitlines()):
        if line.get("name") == "queuewatch_oldest_message_age_seconds" and line["labels"]["queue"] == queue:
            series[line["labels"]["scope"]][(line["at"] - T0) // 60_000] = line["value"] / 60
    return series


def picture(lives: dict[str, Series]) -> str:
    """Return the ages over time as SVG, one chart per scenario."""
    wide, high, gap = 640, 150, 64
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide + 80} {len(lives) * (high + gap) + 40}" '
        'font-family="system-ui, sans-serif" font-size="12"><rect width="100%" height="100%" fill="#ffffff"/>'
    ]
    for i, scope in enumerate(SCOPES):
        parts.append(f'<rect x="{50 + i * 110}" y="10" width="14" height="4" fill="{COLOURS[scope]}"/>')
        parts.append(f'<text x="{70 + i * 110}" y="16" fill="#333">{scope}</text>')
    for row, (title, series) in enumerate(lives.items()):
        top = 50 + row * (high + gap)
        parts.append(f'<text x="50" y="{top - 8}" fill="#111" font-weight="600">{title}</text>')
        for age in (0, 10, 20, 30):
            y = top + high - age * high / 30
            parts.append(f'<line x1="50" x2="{50 + wide}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
            parts.append(f'<text x="44" y="{y + 4:.0f}" text-anchor="end" fill="#666">{age}</text>')
        for minute in range(0, MINUTES + 1, 5):
            x = 50 + minute * wide / MINUTES
            parts.append(f'<text x="{x:.0f}" y="{top + high + 16}" text-anchor="middle" fill="#666">{minute} min</text>')
        for scope in SCOPES:
            for run in runs(series[scope]):
                points = " ".join(f"{50 + m * wide / MINUTES:.1f},{top + high - a * high / 30:.1f}" for m, a in run)
                parts.append(f'<polyline fill="none" stroke="{COLOURS[scope]}" stroke-width="2.2" points="{points}"/>')
                for x, y in (point.split(",") for point in points.split()):
                    parts.append(f'<circle cx="{x}" cy="{y}" r="2" fill="{COLOURS[scope]}"/>')
    return "\n".join([*parts, "</svg>", ""])


def runs(series: dict[int, float]) -> list[list[tuple[int, float]]]:
    """Split the series at minutes that have no value, because there was no message."""
    out: list[list[tuple[int, float]]] = []
    for minute in sorted(series):
        if not out or minute != out[-1][-1][0] + 1:
            out.append([])
        out[-1].append((minute, series[minute]))
    return out


def tables(lives: dict[str, Series]) -> str:
    """Return the tables, minute by minute, in Markdown."""
    text = "# One poison message, four clocks, minute by minute\n\n"
    text += "Written by `python scripts/age_experiment.py`. Ages in minutes; empty: no such message.\n"
    for title, series in lives.items():
        text += f"\n## {title}\n\n| minute | " + " | ".join(SCOPES) + " |\n|---|" + "---|" * len(SCOPES) + "\n"
        for minute in range(1, MINUTES + 1):
            values = [f"{series[scope][minute]:.1f}" if minute in series[scope] else "" for scope in SCOPES]
            text += f"| {minute} | " + " | ".join(values) + " |\n"
    return text


def main() -> int:
    """Write or check the chart and the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check whether they are up to date")
    check = parser.parse_args().check
    lives = {title: ages_min(events, "orders") for title, events in LIVES.items()}
    stale = []
    for path, text in ((PICTURE, picture(lives)), (TABLES, tables(lives))):
        if check and (not path.exists() or path.read_text() != text):
            stale.append(path.name)
        elif not check:
            path.write_text(text)
    if stale:
        print(f"{', '.join(stale)} differ from the replay: run python scripts/age_experiment.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
