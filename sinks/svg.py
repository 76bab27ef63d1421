"""Charts as SVG text: axes, lines and bars. Pure and deterministic, without a drawing library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from sinks.markup import escaped

Point = tuple[float, float | None]
"""x and y; None leaves a gap in the line where the value is unknown."""
Tick = tuple[float, str]

STYLE = """
svg { font: 12px system-ui, sans-serif; }
svg .axis { stroke: #8a9499; stroke-width: 1; fill: none; }
svg .grid { stroke: #8a9499; stroke-opacity: .25; stroke-width: 1; }
svg text { fill: #59656b; }
svg .line { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
svg .dot { stroke: none; }
svg .c0 { --c: #12695c; } svg .c1 { --c: #b3261e; } svg .c2 { --c: #2d5f86; } svg .c3 { --c: #b07410; }
svg .c4 { --c: #7a4fa3; } svg .c5 { --c: #6b7579; } svg .c6 { --c: #c2529a; } svg .c7 { --c: #4f8f2f; }
svg .line { stroke: var(--c); } svg .dot, svg .bar, svg text.key { fill: var(--c); }
svg .dashed { stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
  svg text { fill: #99a6ab; }
  svg .c0 { --c: #66c9b3; } svg .c1 { --c: #ff8a7d; } svg .c2 { --c: #86bce4; } svg .c3 { --c: #efb85f; }
  svg .c4 { --c: #c3a2e6; } svg .c5 { --c: #aab4b8; } svg .c6 { --c: #ee9fcd; } svg .c7 { --c: #9bd07a; }
}
"""


@dataclass(frozen=True)
class Axis:
    """Maps a range of values to a range of pixels. A logarithmic scale begins above zero."""

    low: float
    high: float
    from_px: float
    to_px: float
    ticks: tuple[Tick, ...] = ()
    logarithmic: bool = False

    def px(self, value: float) -> float:
        """Return the position of a value, clamped to the axis."""
        held = min(max(value, self.low), self.high)
        low, high = self.low, self.high
        if self.logarithmic:
            held, low, high = math.log10(held), math.log10(low), math.log10(high)
        share = (held - low) / (high - low) if high > low else 0.0
        return self.from_px + share * (self.to_px - self.from_px)


@dataclass(frozen=True)
class Line:
    """One series. `colour` is 0 to 7."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False
    stepped: bool = False
    """Whether the value holds until the next point."""


def linear(low: float, high: float, from_px: float, to_px: float) -> Axis:
    """Return an axis from `low` to at least `high` with about four round ticks."""
    step = _round_step((high - low) / 4 if high > low else 1.0)
    top = low + step * max(1, math.ceil((high - low) / step - 1e-9))
    ticks = [low + step * n for n in range(round((top - low) / step) + 1)]
    return Axis(low, top, from_px, to_px, tuple((t, f"{t:,.6g}") for t in ticks))


def time_axis(from_ms: float, to_ms: float, from_px: float, to_px: float) -> Axis:
    """Return an axis of epoch milliseconds with at most nine ticks, at round UTC times."""
    step = next((s for s in _TIME_STEPS_MS if (to_ms - from_ms) / s <= 8), _TIME_STEPS_MS[-1])
    first = math.ceil(from_ms / step) * step
    ticks = [first + step * n for n in range(max(0, math.floor((to_ms - first) / step)) + 1)] if first <= to_ms else []
    form = "%m-%d" if step >= 86_400_000 else "%H:%M" if step >= 60_000 else "%H:%M:%S"
    return Axis(from_ms, max(to_ms, from_ms + 1), from_px, to_px, tuple((t, utc(t, form)) for t in ticks))


def utc(at_ms: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format epoch milliseconds as UTC; a time outside the calendar is a plain number."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return str(round(at_ms))


def plot(lines: Iterable[Line], x: Axis, y: Axis) -> str:
    """Return both axes and the lines as elements."""
    return "".join((*_y_grid(x, y), *x_ticks(x, y.from_px), *(_line(line, x, y) for line in lines)))


def legend(names: Sequence[tuple[str, int]], x_px: float, y_px: float, every_px: float | None = None) -> str:
    """Return a legend of coloured names, side by side, or stacked with a distance of `every_px`."""
    parts = []
    for name, colour in names:
        parts.append(f'<text class="key c{colour}" x="{_n(x_px)}" y="{_n(y_px)}">— {escaped(name)}</text>')
        if every_px is None:
            x_px += 7.2 * len(name) + 34
        else:
            y_px += every_px
    return "".join(parts)


def label(text: str, x_px: float, y_px: float, anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text x="{_n(x_px)}" y="{_n(y_px)}" text-anchor="{anchor}">{escaped(text)}</text>'


def bar(x: Axis, from_x: float, to_x: float, y_px: float, height_px: float, css: str, title: str) -> str:
    """Return a bar between two values of `x`, at least two pixels wide, with a tooltip."""
    left = x.px(from_x)
    width = max(2.0, x.px(to_x) - left)
    where = f'x="{_n(left)}" y="{_n(y_px)}" width="{_n(width)}" height="{_n(height_px)}"'
    return f'<rect class="bar {css}" {where} rx="2"><title>{escaped(title)}</title></rect>'


def picture(elements: str, width: int, height: int, title: str, *, alone: bool = False) -> str:
    """Return the whole image; with `alone` as a standalone file that includes its style."""
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escaped(title)}"'
    own = f' xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"' if alone else ""
    style = f"<style>{STYLE}</style>" if alone else ""
    return f"{head}{own}>{style}{elements}</svg>"


def x_ticks(x: Axis, at_px: float) -> Iterable[str]:
    """Return the horizontal axis with its labels."""
    yield f'<path class="axis" d="M{_n(x.from_px)} {_n(at_px)}H{_n(x.to_px)}"/>'
    for value, text in x.ticks:
        yield f'<path class="axis" d="M{_n(x.px(value))} {_n(at_px)}v4"/>' + label(text, x.px(value), at_px + 17, "middle")


def _y_grid(x: Axis, y: Axis) -> Iterable[str]:
    for value, text in y.ticks:
        at = y.px(value)
        yield f'<path class="grid" d="M{_n(x.from_px)} {_n(at)}H{_n(x.to_px)}"/>' + label(text, x.from_px - 6, at + 4, "end")


def _line(line: Line, x: Axis, y: Axis) -> str:
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in thinned(line.points, x):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((x.px(at), y.px(value)))
    drawn = "".join(_path(run, stepped=line.stepped) for run in runs if run)
    dashed = " dashed" if line.dashed else ""
    return f'<path class="line c{line.colour}{dashed}" d="{drawn}"><title>{escaped(line.name)}</title></path>' if drawn else ""


def _path(run: Sequence[tuple[float, float]], *, stepped: bool) -> str:
    parts = [f"M{_n(run[0][0])} {_n(run[0][1])}"]
    if len(run) == 1:
        parts.append("h1.5")
    for (_, before), (px, py) in pairwise(run):
        parts.append(f"H{_n(px)}V{_n(py)}" if stepped and before != py else f"L{_n(px)} {_n(py)}")
    return "".join(parts)


def thinned(points: Sequence[Point], x: Axis) -> Sequence[Point]:
    """Keep the first, the highest and the last point of each pixel, so that no peak is lost."""
    if len(points) <= 2 * abs(x.to_px - x.from_px):
        return points
    kept: list[Point] = []
    column: list[Point] = []
    for point in points:
        if column and round(x.px(point[0])) != round(x.px(column[0][0])):
            kept += _of_column(column)
            column = []
        column.append(point)
    return [*kept, *_of_column(column)]


def _of_column(column: list[Point]) -> list[Point]:
    known = [p for p in column if p[1] is not None]
    if not known or len(column) < 4:
        return column
    highest = max(known, key=lambda p: p[1] or 0.0)
    gap = [p for p in column if p[1] is None][:1]
    return sorted({column[0], highest, column[-1], *gap}, key=lambda p: p[0])


_TIME_STEPS_MS = (
    *(1_000 * n for n in (1, 2, 5, 10, 15, 30)),
    *(60_000 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3_600_000 * n for n in (1, 2, 3, 6, 12)),
    *(86_400_000 * n for n in (1, 2, 7, 30, 365)),
)


def _round_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(size * n for n in (1, 2, 2.5, 5, 10) if size * n >= rough * 0.999)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
