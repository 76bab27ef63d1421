"""The charts of a report: a queue's ages, depths and signals on one time axis, and the deliveries of a message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from sinks import svg
from sinks.explain.formatting import duration
from sinks.markup import shortened
from sinks.report.attempts import MessageStory
from sinks.report.collect import AGES, Collected, QueueSeries, Span
from streaming.core.reporting.views import STATES
from streaming.core.settings import QueueName

WIDTH = 1040
LEFT, RIGHT = 200, WIDTH - 32
"""The longest signal name and a count of five digits fit to the left of the lanes."""
PANEL = 130
"""The height of the age panel and of the depth panel."""
LANE = 22

_AGE_NAMES = {"all": "oldest message", "visible": "oldest visible", "cloudwatch": "as CloudWatch would show"}
_STATE_NAMES = {"visible": "visible", "in_flight": "in flight", "delayed": "delayed"}
_AGE_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800)


def queue_picture(collected: Collected, name: QueueName) -> str:
    """Draw the ages, depths and signals of one queue."""
    series = collected.queues[name]
    times = collected.times
    x = svg.time_axis(times[0], times[-1], LEFT, RIGHT)
    spans = [span for span in collected.spans if span.key.queue_name == name]
    parts: list[str] = []
    ages = {a: series.ages[a] for a in AGES if a in series.ages and (a != "cloudwatch" or name.system == "aws_sqs")}
    bottom = _ages(parts, ages, series.bounds, times, x)
    bottom = _messages(parts, series, times, x, bottom)
    bottom = _signals(parts, spans, x, bottom, times[-1])
    return svg.picture("".join(parts), WIDTH, round(bottom), f"Ages, messages and signals of {name.queue} over time")


def _ages(
    parts: list[str], ages: Mapping[str, Mapping[int, float]], bounds: Set[str], times: Sequence[int], x: svg.Axis
) -> float:
    highest = max((max(s.values()) for s in ages.values()), default=0.0)
    y = _age_axis(highest, 26 + PANEL, 26)
    names = [(_AGE_NAMES[a] + (" (at least)" if a in bounds else ""), AGES.index(a)) for a in ages]
    parts.append(svg.label("age", 4, 16))
    parts.append(svg.legend(names, LEFT, 16) if names else svg.label("no age is known, or nothing was there", LEFT, 16))
    lines = [
        svg.Line(_AGE_NAMES[a], _points(values, times), AGES.index(a), dashed=a == "cloudwatch") for a, values in ages.items()
    ]
    parts.append(svg.plot(lines, x, y))
    return y.from_px


def _messages(parts: list[str], series: QueueSeries, times: Sequence[int], x: svg.Axis, above: float) -> float:
    shown = [s for s in STATES if any(series.messages.get(s, {}).values()) or (s != "delayed" and s in series.messages)]
    highest = max((max(series.messages[s].values()) for s in shown), default=0.0)
    top = above + 48
    y = svg.linear(0, max(highest, 4), top + PANEL * 0.75, top)
    parts.append(svg.label("messages", 4, top - 10))
    parts.append(svg.legend([(_STATE_NAMES[s], n) for n, s in enumerate(shown)], LEFT, top - 10))
    lines = [svg.Line(_STATE_NAMES[s], _points(series.messages[s], times), n, stepped=True) for n, s in enumerate(shown)]
    parts.append(svg.plot(lines, x, y))
    return y.from_px


def _signals(parts: list[str], spans: Sequence[Span], x: svg.Axis, above: float, end_ms: int) -> float:
    lanes: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda s: s.from_ms):
        lanes.setdefault(span.key.signal, []).append(span)
    if not lanes:
        return above + 26
    top = above + 34
    for n, (signal, mine) in enumerate(lanes.items()):
        at = top + n * LANE
        several = f" ×{len(mine)}" if len(mine) > 1 else ""
        parts.append(svg.label(signal + several, LEFT - 6, at + 12, "end"))
        for css, span in _bars(mine, end_ms):
            to_ms = end_ms if span.to_ms is None else span.to_ms
            about = shortened(span.key.message_id or span.key.group or span.key.consumer or "", 60)
            lasting = duration((to_ms - span.from_ms) / 1000) + (", still firing" if span.to_ms is None else "")
            title = f"{signal} {about} from {svg.utc(span.from_ms)} UTC, {lasting}"
            parts.append(svg.bar(x, span.from_ms, to_ms, at, LANE - 8, css, title))
    bottom = top + len(lanes) * LANE + 2
    parts += svg.x_ticks(x, bottom)
    return bottom + 26


def _bars(spans: Sequence[Span], end_ms: int) -> Iterator[tuple[str, Span]]:
    """Yield the bars of one lane with their CSS class, the worst last, because it is drawn over the others."""
    of_class: dict[str, list[Span]] = {"folded": [], "info": [], "warning": [], "critical": []}
    for span in spans:
        of_class["folded" if span.finding.folded else span.finding.severity].append(span)
    for css, alike in of_class.items():
        for span in _merged(alike, end_ms):
            yield css, span


def _merged(spans: Sequence[Span], end_ms: int) -> Iterator[Span]:
    """Merge overlapping spans of one class, so that a burst of dead letters is one bar and not a thousand."""
    held: Span | None = None
    for span in spans:
        if held is not None and span.from_ms <= (end_ms if held.to_ms is None else held.to_ms):
            to_ms = None if None in (held.to_ms, span.to_ms) else max(held.to_ms or 0, span.to_ms or 0)
            held = replace(held, to_ms=to_ms)
            continue
        if held is not None:
            yield held
        held = span
    if held is not None:
        yield held


_BARS: Mapping[str, str] = {"deleted": "done", "deleted after the window": "late", "in flight": "open", "extended": "open"}


def message_picture(story: MessageStory) -> str:
    """Draw one bar for each delivery of a message."""
    if not story.deliveries:
        return ""
    first = min(story.timeline[0].at_ms, story.deliveries[0].from_ms)
    last = max(story.timeline[-1].at_ms, *(d.to_ms for d in story.deliveries))
    x = svg.time_axis(first, last, LEFT, RIGHT)
    lanes = list(dict.fromkeys(d.consumer or "unknown consumer" for d in story.deliveries))
    parts = []
    for n, lane in enumerate(lanes):
        parts.append(svg.label(shortened(lane, 20), LEFT - 6, 16 + n * LANE, "end"))
    for d in story.deliveries:
        at = 4 + lanes.index(d.consumer or "unknown consumer") * LANE
        which = f"receive {d.receive_count}" if d.receive_count else "a receive"
        title = f"{which}: {d.how} after {duration((d.to_ms - d.from_ms) / 1000)}"
        parts.append(svg.bar(x, d.from_ms, d.to_ms, at, LANE - 8, _BARS.get(d.how, "failed"), title))
    bottom = 6 + len(lanes) * LANE
    parts += svg.x_ticks(x, bottom)
    return svg.picture("".join(parts), WIDTH, bottom + 26, f"Deliveries of message {shortened(story.message_id, 80)}")


def _points(series: Mapping[int, float], times: Sequence[int]) -> list[svg.Point]:
    return [(at, series.get(at)) for at in times]


def _age_axis(highest_s: float, from_px: float, to_px: float) -> svg.Axis:
    """Return an axis with ticks in everyday units: 5 min, not 300."""
    step = next((s for s in _AGE_STEPS_S if highest_s / s <= 4), _AGE_STEPS_S[-1])
    while highest_s / step > 8:
        step *= 2
    count = max(1, -(-highest_s // step))
    ticks = tuple((float(step * n), duration(step * n) if n else "0") for n in range(round(count) + 1))
    return svg.Axis(0.0, step * count, from_px, to_px, ticks)
