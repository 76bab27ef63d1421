"""The report page of a replay: one self-contained file without scripts or network access.

Everything in it that came from outside (names, ids, evidence, reasons) goes through `escaped`; in case something is missed, the
page's own policy forbids scripts and external resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

import pyarrow as pa

from sinks import svg
from sinks.explain.advice import advice
from sinks.explain.formatting import count, duration, evidence_words
from sinks.markup import escaped, shortened
from sinks.report.attempts import MessageStory, message_story
from sinks.report.collect import Collected, Span, severity_rank
from sinks.report.pictures import message_picture, queue_picture
from streaming.core.settings import QueueName

MOST_SIGNALS = 500
MOST_QUEUES = 40
MOST_MESSAGES = 20
MOST_EXPLAINED = 100
_LONGEST_VALUE = 2_000
_KEY = (
    "A bar is a delivery: green when the message was deleted in its window, yellow when later, red when it came back, "
    "blue when it is still held."
)


def report_page(collected: Collected, events: pa.Table, files: Sequence[str], unreadable: int = 0) -> str:
    """Render everything collected as HTML. `files` are the names of the recording's files."""
    style = (resources.files("sinks") / "report" / "report.css").read_text(encoding="utf-8")
    names = ", ".join(files)
    body = "".join((_head(collected, len(events), names, unreadable), *_body(collected, events)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>queuewatch: {escaped(shortened(names, 80))}</title>\n<style>{style}{svg.STYLE}</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )


def _head(collected: Collected, events: int, names: str, unreadable: int) -> str:
    announced = [s for s in collected.spans if s.finding.announced]
    pages = sum(1 for s in announced if s.finding.severity == "critical")
    explained = sum(1 for s in collected.spans if s.finding.folded)
    when = "no time in it"
    if collected.times:
        first, last = collected.times[0], collected.times[-1]
        when = f"{svg.utc(first)} to {svg.utc(last)} UTC ({duration((last - first) / 1000)})"
    parts = [when, count(events, "event"), count(len(collected.queues), "queue"), count(len(announced), "signal")]
    parts[-1] += f", {pages:,} critical"
    if explained:
        parts.append(f"{explained:,} more explained by one of them")
    if unreadable:
        parts.append(f"{count(unreadable, 'event')} could not be read")
    return f"<header><h1>What happened</h1><p>{escaped(names)}</p><p>{escaped(' · '.join(parts))}</p></header>\n<main>\n"


def _body(collected: Collected, events: pa.Table) -> Iterator[str]:
    spans = sorted(collected.spans, key=lambda s: s.from_ms)
    ends_ms = collected.times[-1] if collected.times else 0
    stories = [message_story(events, queue, message_id, ends_ms) for queue, message_id in culprits(collected.spans)]
    anchors = {(s.queue, s.message_id): f"message-{n}" for n, s in enumerate(stories, start=1)}
    yield '<section><h2 id="signals">Signals</h2>\n'
    yield from _signals(spans, anchors)
    yield "</section>\n"
    yield from _queues(collected)
    yield from _messages(stories, anchors)
    yield "</main>\n<footer>Times are UTC. Made by <code>queuewatch replay --report</code>.</footer>\n"


def culprits(spans: Sequence[Span]) -> list[tuple[QueueName, str]]:
    """Return the messages that signals name, as their subject or in evidence, worst and earliest first."""
    found: dict[tuple[QueueName, str], None] = {}
    for span in sorted(spans, key=lambda s: (severity_rank(s.finding), s.from_ms)):
        message_id = span.key.message_id or span.finding.evidence.get("message_id")
        if isinstance(message_id, str) and message_id:
            found.setdefault((span.key.queue_name, message_id))
    same: dict[tuple[str, str, str], tuple[QueueName, str]] = {}
    for queue, message_id in found:
        # A dead letter keeps its id: one story for both queues.
        same.setdefault((queue.system, queue.scope, message_id), (queue, message_id))
    return list(same.values())[:MOST_MESSAGES]


Anchors = dict[tuple[QueueName, str], str]
ByMessage = dict[tuple[str, str, str], str]
"""Anchors by system, scope and message id: a dead letter has one story for both queues."""


def _signals(spans: Sequence[Span], anchors: Anchors) -> Iterator[str]:
    unfolded = [s for s in spans if s.finding.folded is None]
    explained = [s for s in spans if s.finding.folded is not None]
    by_message = {(queue.system, queue.scope, message_id): anchor for (queue, message_id), anchor in anchors.items()}
    if unfolded:
        yield from _signal_table(unfolded, by_message, MOST_SIGNALS)
    else:
        yield "<p>No signal fired.</p>\n"
    if explained:
        by = ", ".join(sorted({str(s.finding.folded) for s in explained}))
        yield f"<details><summary>{count(len(explained), 'signal')} that {escaped(by)} explains</summary>\n"
        yield from _signal_table(explained, by_message, MOST_EXPLAINED)
        yield "</details>\n"


def _signal_table(spans: Sequence[Span], anchors: ByMessage, most: int) -> Iterator[str]:
    yield '<table class="signals"><thead><tr><th>Begins</th><th>Lasts</th><th>Signal</th><th>What</th></tr></thead><tbody>\n'
    for span in spans[:most]:
        yield _signal_row(span, anchors)
    yield "</tbody></table>\n"
    if len(spans) > most:
        yield f"<p>{len(spans) - most:,} later ones are not shown: <code>queuewatch replay</code> prints all.</p>\n"


def _signal_row(span: Span, anchors: ByMessage) -> str:
    finding, key = span.finding, span.key
    lasts = "until the end" if span.to_ms is None else duration((span.to_ms - span.from_ms) / 1000)
    css = "folded" if finding.folded else finding.severity
    chip = f"explained by {finding.folded}" if finding.folded else finding.severity if finding.alerting else "not alerting"
    message_id = key.message_id or finding.evidence.get("message_id")
    anchor = anchors.get((key.system, key.scope, message_id)) if isinstance(message_id, str) else None
    link = "" if anchor is None else f' <a href="#{anchor}">its attempts</a>'
    evidence = "".join(
        f"<dt>{escaped(name)}</dt><dd>{escaped(shortened(evidence_words(name, value), _LONGEST_VALUE))}</dd>"
        for name, value in {**_about(span), **finding.evidence}.items()
        if name != "summary"
    )
    return (
        f"<tr><td>{svg.utc(span.from_ms)}</td><td>{lasts}</td>"
        f'<td><b>{escaped(key.signal)}</b> <span class="chip {css}">{escaped(chip)}</span></td>'
        f"<td>{escaped(finding.summary)}{link}<details><summary>evidence</summary><dl>{evidence}</dl>"
        f"<p>{escaped(advice(finding).meaning)}</p></details></td></tr>\n"
    )


def _about(span: Span) -> dict[str, Any]:
    key = span.key
    parts = {"system": key.system, "scope": key.scope, "queue": key.queue}
    parts |= {"group": key.group or "", "consumer": key.consumer or "", "message_id": key.message_id or ""}
    return {name: value for name, value in parts.items() if value}


def _queues(collected: Collected) -> Iterator[str]:
    if not collected.times:
        return
    names = collected.worst_first()
    for name in names[:MOST_QUEUES]:
        kind = "Dead-letter queue" if collected.queues[name].is_dead_letter_queue else "Queue"
        where = f"{name.system} {name.scope}".strip()
        yield f"<section><h2>{kind} {escaped(name.queue)}</h2><p>{escaped(where)}</p>\n"
        yield f'<div class="wide">{queue_picture(collected, name)}</div></section>\n'
    if len(names) > MOST_QUEUES:
        yield f"<p>{len(names) - MOST_QUEUES:,} queues with less to tell are not drawn.</p>\n"


def _messages(stories: Sequence[MessageStory], anchors: Anchors) -> Iterator[str]:
    if stories:
        yield f"<section><h2>Messages named in signals</h2>\n<p>{_KEY}</p>\n"
    for story in stories:
        anchor = anchors[story.queue, story.message_id]
        yield f'<article id="{anchor}"><h3>{escaped(story.message_id)}</h3>'
        yield f"<p>of {escaped(story.queue.queue)}, {count(len(story.deliveries), 'delivery', 'deliveries')}</p>\n"
        if story.left_out:
            yield f"<p>{story.left_out:,} earlier events are not shown.</p>\n"
        yield f'<div class="wide">{message_picture(story)}</div>\n'
        yield from _event_table(story)
        yield "</article>\n"
    if stories:
        yield "</section>\n"


def _event_table(story: MessageStory) -> Iterator[str]:
    if not story.timeline:
        yield "<p>No event of the recording is about this message: it was inferred.</p>\n"
        return
    yield "<details><summary>every event</summary><table><thead><tr><th>At</th><th>Event</th><th>Receive</th><th>Consumer</th>"
    yield "<th>Queue</th><th>Until</th><th></th></tr></thead><tbody>\n"
    for h in story.timeline:
        until = "" if h.until_ms is None else _until(h.until_ms, h.at_ms)
        cells = (svg.utc(h.at_ms), h.what, h.receive_count or "", h.consumer or "", h.queue, until, h.note)
        yield "<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in cells) + "</tr>\n"
    yield "</tbody></table></details>\n"


def _until(until_ms: int, at_ms: int) -> str:
    """Return the end of a window: the time, and the day if it is another one than that of the event."""
    day, _, time = svg.utc(until_ms).partition(" ")
    return time if svg.utc(at_ms).startswith(day) else f"{day} {time}".rstrip()
