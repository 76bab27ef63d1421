"""The terminal view: a table that fits the terminal, and plain lines without one.

Nothing that a name contains can change it.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from sinks.store import Published, SnapshotStore
from sinks.terminal import change_lines, closing_lines, screen, show
from streaming.judge.findings.signals import SignalKey
from streaming.judge.snapshot import Snapshot
from tests.sinks.fakes import NOW_MS, hostile_snapshot, many_queues, shop_snapshot


def picture(snapshot: Snapshot | None, width: int = 120, height: int = 40) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False, color_system=None)
    published = None if snapshot is None else Published(1, snapshot)
    with console.capture() as capture:
        console.print(screen(published, NOW_MS, url="http://127.0.0.1:9400", width=width, height=height))
    return capture.get().splitlines()


def shown(terminal: bool, act: Callable[[SnapshotStore], None]) -> str:
    """Return what `show` writes while `act` publishes."""
    out = io.StringIO()
    console = Console(file=out, width=120, height=40, force_terminal=terminal, color_system=None)
    store, stop = SnapshotStore(), threading.Event()
    viewer = threading.Thread(target=show, args=(store, stop), kwargs={"url": "http://x", "console": console})
    viewer.start()
    act(store)
    stop.wait(1.3)
    stop.set()
    viewer.join(10)
    assert not viewer.is_alive()
    return out.getvalue()


def test_queues_and_signals_with_one_line_each() -> None:
    """The most urgent queue comes first; the signals' sentences follow."""
    lines = picture(shop_snapshot())
    assert lines[0] == "queuewatch  http://127.0.0.1:9400"
    rows = [line.split() for line in lines]
    assert ["orders", "lagging", "184", "12", "2", "min", "41", "s", "1", "min", "36", "s", "5", "2"] in rows
    assert {(row[0], row[1]) for row in rows if len(row) > 1} >= {("payments.fifo", "critical"), ("invoice-mail", "stopped")}
    assert lines[1].endswith("Oldest  Oldest visible  Most receives  Signals")
    assert any("critical GroupStuck 6 min 52 s Group customer-4711 of payments.fifo has not moved" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60), (40, 10)])
def test_the_view_fits_the_terminal(width: int, height: int) -> None:
    """A longer view would scroll, and redrawing it would leave remnants."""
    for snapshot in (shop_snapshot(), many_queues(500), hostile_snapshot()):
        lines = picture(snapshot, width, height)
        assert len(lines) <= height
        assert max(len(line) for line in lines) <= width


def test_a_usual_terminal_cuts_no_heading_and_no_number() -> None:
    """Below 100 columns the headings are shorter; only a long name is cut."""
    snapshot = shop_snapshot()
    longest = replace(snapshot, queues=(replace(snapshot.queues[0], queue="x" * 60), *snapshot.queues[1:]))
    for shown in (snapshot, longest):
        lines = picture(shown, 80, 40)
        assert lines[1].split() == ["Queue", "Status", "Visible", "In", "flight", "Oldest", "Oldest", "vis.", "Recv.", "Sig."]
        assert not any("…" in line.replace("x…", "") for line in lines[2:14])
    assert any(line.startswith("xxxxxxxx") and "x… " in line for line in lines)


def test_a_sentence_has_a_second_line_if_the_height_allows() -> None:
    """The most severe signals get theirs first; where no line is left, a sentence is cut."""
    few = replace(shop_snapshot(), queues=shop_snapshot().queues[:4])
    lines = picture(few, 80, 24)
    assert [line.rstrip() for line in lines[7:9]] == [
        "critical DeadLetterExpiring 21 h 30 min Message",
        "         dead0000-aaaa-4bbb-8ccc-ddddeeeeffff of dead-letter queue orders-dlq w…",
    ]
    assert len(lines) == 23
    assert [line.startswith(" ") for line in lines[7:]] == [False, True] * 7 + [False] * 2


def test_before_the_first_batch_and_without_a_signal() -> None:
    """The view says that there is nothing yet, instead of being empty."""
    assert "Waiting for the first batch…" in picture(None)
    assert "No signal fires." in picture(replace(shop_snapshot(), firing=()))


@pytest.mark.slow
def test_without_a_terminal_each_change_is_printed_as_a_line() -> None:
    """As in a log, one line says that a signal began, with its sentence, and one that it was resolved."""

    def act(store: SnapshotStore) -> None:
        store.publish(shop_snapshot())
        threading.Event().wait(0.8)
        store.publish(replace(shop_snapshot(), firing=shop_snapshot().firing[1:]))

    text = shown(False, act)
    assert "\x1b" not in text
    assert "FIRING   critical GroupStuck on payments.fifo: Group customer-4711 of payments.fifo has not moved" in text
    assert text.count("FIRING ") == 9
    assert "RESOLVED warning  PoisonMessage on orders" in text
    assert "orders: lagging, PoisonMessage, 184 visible, 12 in flight" in text


def test_a_signal_about_a_collector_names_no_queue() -> None:
    """It has none: its sentence names the collector."""
    poison = shop_snapshot().firing[-1]
    stale = replace(poison, key=SignalKey("TelemetryStale", "", "", "", consumer="sqs"), evidence={"summary": "sqs is silent."})
    snapshot = replace(shop_snapshot(), firing=(stale,))
    (began,) = change_lines(None, snapshot)
    assert began.endswith(f"{stale.severity:8} TelemetryStale: sqs is silent.")
    (ended,) = change_lines(snapshot, replace(snapshot, firing=()))
    assert ended.endswith("TelemetryStale")


def test_a_line_has_the_time_of_the_status_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """In UTC: whoever looks for the moment on the page, in a report or in the log finds the same time."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        lines = list(change_lines(None, shop_snapshot(1_700_000_000_000)))
    time.tzset()
    assert lines
    assert all(line.startswith("22:13:20Z FIRING   ") for line in lines)


@pytest.mark.slow
def test_in_a_terminal_the_view_is_redrawn_in_place() -> None:
    """The terminal gets one view that is updated in place."""
    text = shown(True, lambda store: store.publish(shop_snapshot()))
    assert "\x1b[" in text
    assert "payments.fifo" in text


def test_hostile_names_do_not_affect_the_terminal() -> None:
    """Names inject neither escape sequences nor markup of the drawing library."""
    snapshot = hostile_snapshot()
    evil = replace(snapshot.queues[0], queue="\x1b[2J[bold red]evil[/]\x07")
    finding = replace(snapshot.firing[0], evidence={"summary": "\x1b]0;title\x07 [link=x]y[/link]"})
    snapshot = replace(snapshot, queues=(evil, *snapshot.queues), firing=(finding, *snapshot.firing))
    for line in (*picture(snapshot, 200, 60), *change_lines(None, snapshot)):
        assert line.isprintable()
        line.encode()  # a lone surrogate would fail here
    assert any("[bold red]evil[/]" in line for line in picture(snapshot, 200, 60))


def test_the_end_prints_a_summary() -> None:
    """The summary has every queue, the firing signals and the resolved ones."""
    store = SnapshotStore()
    assert list(closing_lines(store, NOW_MS)) == ["No results: no batch was published."]
    store.publish(shop_snapshot())
    store.publish(replace(shop_snapshot(), firing=shop_snapshot().firing[1:]))
    lines = list(closing_lines(store, NOW_MS))
    assert "orders: lagging, PoisonMessage, 184 visible, 12 in flight, oldest 2 min 41 s, received up to 5 times" in lines
    assert "audit.fifo: ok, 2 visible, 0 in flight, oldest 2 s" in lines
    assert "payments.fifo: GroupStuck, 2,310 visible, 38 in flight, oldest 6 min 52 s, received up to 11 times" in lines
    assert "resolved: PoisonMessage on orders" in lines
    assert sum(line.startswith("firing: ") for line in lines) == 8
