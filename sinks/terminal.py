"""The status page's content in a terminal: a live table with the signals below it, or plain lines otherwise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sinks.clock import wall_ms
from sinks.explain.formatting import count, duration_ms, printable
from sinks.query import QueueQuery, matching
from sinks.store import Published, SnapshotStore
from streaming.judge.findings.signals import Finding, SignalKey
from streaming.judge.snapshot import QueueView, Snapshot

_LOOK_S = 0.5
_PLAIN_EVERY_S = 15.0
"""Without a terminal: how often the numbers are printed again while no signal changes."""
_NARROW = 100
"""Below this width the table has short headings."""
_NUMBERS = ("Visible", "In flight", "Oldest", "Oldest visible", "Most receives", "Signals")
_NUMBERS_SHORT = ("Visible", "In flight", "Oldest", "Oldest vis.", "Recv.", "Sig.")
"""The columns of the status page."""
_INDENT = 9
"""The width of a signal's severity, below which the sentence continues."""
_SEVERITY_STYLE = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
_STATUS_STYLE = {
    "critical": "bold red",
    "ok": "green",
    "lagging": "yellow",
    "failing": "bold red",
    "stalled": "bold red",
    "stopped": "bold red",
    "stale": "dim",
    "unknown": "dim",
}


def show(
    store: SnapshotStore,
    stop: threading.Event,
    *,
    url: str | None = None,
    console: Console | None = None,
    clock_ms: Callable[[], int] = wall_ms,
) -> None:
    """Show the content of `store` until `stop` is set. `url`, the status page's URL, is shown at the top."""
    console = console or Console()
    if console.is_terminal:
        _show_live(store, stop, url, console, clock_ms)
    else:
        _show_lines(store, stop, url, console, clock_ms)


def screen(published: Published | None, now_ms: int, *, url: str | None, width: int, height: int) -> RenderableType:
    """Render everything to fit `width` × `height` characters. Pure."""
    where = Text.assemble(("queuewatch", "bold"), f"  {url}" if url else "")
    if published is None:
        return Group(where, Text("Waiting for the first batch…", style="dim"))
    firing = published.firing
    room = max(4, height - 8)
    queues = matching(published, QueueQuery())
    signals = min(len(firing), max(2, room // 2, room - len(queues)))
    shown = len(queues) <= room - signals and len(firing) == signals
    spare = height - 4 - len(queues) - signals if shown else 0
    return Group(
        where,
        _queue_table(queues[: room - signals], published, now_ms, width),
        *_more(len(queues) - (room - signals), "queue"),
        Text(),
        *_signal_lines(firing[:signals], now_ms, width, spare),
        *_more(len(firing) - signals, "signal"),
        *([] if firing else [Text("No signal fires.", style="green")]),
    )


def change_lines(before: Snapshot | None, snapshot: Snapshot) -> Iterator[str]:
    """Return a line for each signal that began or ended between two snapshots."""
    at = _clock(snapshot.at_ms)
    old = _by_key(before)
    new = _by_key(snapshot)
    for key, finding in new.items():
        if key not in old:
            yield printable(f"{at} FIRING   {finding.severity:8} {_signal(key)}: {finding.summary}")
    for key, finding in old.items():
        if key not in new:
            yield printable(f"{at} RESOLVED {finding.severity:8} {_signal(key)}")


def closing_lines(store: SnapshotStore, now_ms: int) -> Iterator[str]:
    """Return the closing summary: a line per queue, and every signal that fires or was recently resolved."""
    published = store.latest
    if published is None:
        yield "No results: no batch was published."
        return
    for queue in matching(published, QueueQuery(sort="queue", descending=False)):
        yield printable(f"{queue.queue}: {_standing(queue, published, now_ms)}")
    for finding in published.firing:
        yield printable(f"firing: {_signal(finding.key)}: {finding.summary}")
    for resolved in store.resolved():
        yield printable(f"resolved: {_signal(resolved.finding.key)}")


def _clock(at_ms: int) -> str:
    """Return the time of day in UTC, as on the status page."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%SZ}"


def _signal(key: SignalKey) -> str:
    """Return a signal and its queue. A collector's signals have none."""
    return f"{key.signal} on {key.queue}" if key.queue else key.signal


def _show_live(
    store: SnapshotStore, stop: threading.Event, url: str | None, console: Console, clock_ms: Callable[[], int]
) -> None:
    def picture() -> RenderableType:
        return screen(store.latest, clock_ms(), url=url, width=console.width, height=console.height)

    with Live(picture(), console=console, auto_refresh=False, transient=False) as live:
        while not stop.wait(_LOOK_S):
            live.update(picture(), refresh=True)


def _show_lines(
    store: SnapshotStore, stop: threading.Event, url: str | None, console: Console, clock_ms: Callable[[], int]
) -> None:
    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    if url:
        say(f"queuewatch at {url}")
    before: Published | None = None
    said_at = 0.0
    while not stop.wait(_LOOK_S):
        published = store.latest
        if published is None or published is before:
            continue
        for line in change_lines(None if before is None else before.snapshot, published.snapshot):
            say(line)
        if time.monotonic() - said_at >= _PLAIN_EVERY_S:
            said_at = time.monotonic()
            at = _clock(published.snapshot.at_ms)
            for queue in matching(published, QueueQuery(limit=20))[:20]:
                say(printable(f"{at} {queue.queue}: {_standing(queue, published, clock_ms())}"))
        before = published


def _queue_table(queues: Sequence[QueueView], published: Published, now_ms: int, width: int) -> Table:
    narrow = width < _NARROW
    rows: list[tuple[Text, ...]] = []
    for queue in queues:
        findings = published.findings.get(queue.name, ())
        style = _SEVERITY_STYLE[findings[0].severity] if findings else ""
        rows.append(
            (
                Text(printable(queue.queue), style=style),
                Text(status := published.shown_status(queue), style=_STATUS_STYLE[status]),
                Text(_number(queue.visible)),
                Text(_number(queue.in_flight)),
                Text(_age(queue.oldest_ms.get("all"), now_ms)),
                Text(_age(queue.oldest_ms.get("visible"), now_ms)),
                Text(_number(queue.receive_count_max or None)),
                Text(str(len(findings)) if findings else "", style=style),
            )
        )
    headings = ("Status", *(_NUMBERS_SHORT if narrow else _NUMBERS))
    gap = 1 if narrow else 2
    # Only the names are cut, unless the terminal is too narrow even for the numbers.
    taken = sum(gap + max(len(heading), *(row[i].cell_len for row in rows), 0) for i, heading in enumerate(headings, start=1))
    table = Table(box=None, pad_edge=False, collapse_padding=narrow, header_style="dim", expand=False)
    table.add_column("Queue", overflow="ellipsis", no_wrap=True, max_width=max(len("Queue"), width - taken))
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "Status" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _signal_lines(findings: Sequence[Finding], now_ms: int, width: int, spare: int) -> Iterator[Text]:
    """Return a line for each signal, and a second one for the first `spare` of those whose sentences need it."""
    for finding in findings:
        line = Text.assemble(
            (f"{finding.severity:8} ", _SEVERITY_STYLE[finding.severity]),
            (f"{finding.key.signal} ", "bold"),
            (f"{duration_ms(now_ms - finding.since_ms)} ", "dim"),
            printable(finding.summary),
        )
        if spare > 0 and width > 2 * _INDENT and line.cell_len > width:
            spare -= 1
            line, *more = line.wrap(Console(width=width), width)
            rest = Text(" ").join(more)
            rest.truncate(width - _INDENT, overflow="ellipsis")
            yield line
            yield Text(" " * _INDENT).append_text(rest)
        else:
            line.truncate(width, overflow="ellipsis")
            yield line


def _more(number: int, thing: str) -> list[Text]:
    return [Text(f"and {count(number, thing)} more", style="dim")] if number > 0 else []


def _standing(queue: QueueView, published: Published, now_ms: int) -> str:
    """Return a queue's firing signals and numbers. The status covers only the flow, so `ok` is not shown beside a signal."""
    findings = published.findings.get(queue.name, ())
    known: list[str] = list(dict.fromkeys(finding.key.signal for finding in findings))
    if queue.status != "ok" or not known:
        known.insert(0, queue.status)
    if queue.visible is not None:
        known.append(f"{queue.visible:,} visible")
    if queue.in_flight is not None:
        known.append(f"{queue.in_flight:,} in flight")
    if "all" in queue.oldest_ms:
        known.append(f"oldest {duration_ms(now_ms - queue.oldest_ms['all'])}")
    if queue.receive_count_max and queue.receive_count_max > 1:
        known.append(f"received up to {queue.receive_count_max:,} times")
    return ", ".join(known)


def _by_key(snapshot: Snapshot | None) -> dict[SignalKey, Finding]:
    return {} if snapshot is None else {finding.key: finding for finding in snapshot.firing}


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _age(since_ms: int | None, now_ms: int) -> str:
    return "–" if since_ms is None else duration_ms(now_ms - since_ms)
