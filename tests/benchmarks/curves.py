"""Draw what a step costs, by the number of queues and by the number of live messages, from the JSON of a run.

`python -m tests.benchmarks.curves [build/bench.json [docs/images/scale.svg]]`
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sinks import svg

WIDTH, HEIGHT = 810, 340
TOP, BOTTOM = 40, 280
LEFT_PANEL, RIGHT_PANEL = (60, 370), (450, 760)
QUEUE_STEPS: Final = {"touched": "a tenth touched (1% of 100,000)", "untouched": "none touched", "counted": "all counted"}
_DEFAULTS: Final = ("build/bench.json", "docs/images/scale.svg")
_COUNTS: Final = ((100, "100"), (1_000, "1,000"), (10_000, "10,000"), (100_000, "100,000"))
_LIVE: Final = ((1e5, "100,000"), (1e6, "1 million"), (5e6, "5 million"))
_MS: Final = ((1, "1 ms"), (10, "10 ms"), (100, "100 ms"), (1_000, "1 s"), (10_000, "10 s"))


def draw(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture as SVG text."""
    values = {str(figure["key"]): float(figure["value"]) for figure in figures}
    lines = []
    for colour, (key, name) in enumerate(QUEUE_STEPS.items()):
        found = [(int(match[1]), value) for at, value in values.items() if (match := re.fullmatch(rf"queues\.(\d+)\.{key}", at))]
        lines.append(svg.Line(name, sorted(found), colour))
    live = [(int(match[1]), value) for at, value in values.items() if (match := re.fullmatch(r"scale\.(\d+)", at))]
    parts = _panel(lines, LEFT_PANEL, _COUNTS, "known queues")
    parts += _panel([svg.Line("100,000 events", sorted(live), 4)], RIGHT_PANEL, _LIVE, "live messages")
    parts += svg.legend([(line.name, line.colour) for line in lines], LEFT_PANEL[0] + 12, TOP + 14, 18)
    parts += svg.legend([("100,000 events", 4)], RIGHT_PANEL[0] + 12, TOP + 14, 18)
    parts += svg.label("time of a core for all steps of a batch", LEFT_PANEL[0] - 50, TOP - 20)
    return svg.picture(parts, WIDTH, HEIGHT, "Cost of a batch by the number of queues and of live messages", alone=True)


def _panel(lines: Sequence[svg.Line], px: tuple[int, int], ticks: tuple[svg.Tick, ...], what: str) -> str:
    x = svg.Axis(ticks[0][0], ticks[-1][0], *px, ticks, logarithmic=True)
    y = svg.Axis(1, 10_000, BOTTOM, TOP, _MS, logarithmic=True)
    return svg.plot(lines, x, y) + svg.label(what, sum(px) / 2, BOTTOM + 38, "middle")


def main(arguments: list[str]) -> int:
    """Read a run's JSON and write the picture."""
    given, out = (Path(p) for p in (*arguments, *_DEFAULTS[len(arguments) :]))
    out.write_text(draw(json.loads(given.read_text(encoding="utf-8"))["figures"]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
