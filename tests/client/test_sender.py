"""The background sender batches events, is bounded, retries patiently and never blocks the application."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import queuewatch
from queuewatch import SendError
from queuewatch.handles import HandleMap
from queuewatch.mailbox import Mailbox
from queuewatch.sender import BackgroundSender, flush_all
from queuewatch.sharing import SharedSender
from queuewatch.transports.base import SENDER_THREAD
from tests.client.tracing import before_each_line
from tests.client.transports import Broken, Kept, later
from tests.waiting import until


def events(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Build numbered events."""
    return [{"type": "sent", "n": n, **fields} for n in range(count)]


def test_at_load_records_hold_many_events() -> None:
    """5,000 events go into at most ten records; none is lost, and all are in order."""
    kept = Kept()
    sender = BackgroundSender(kept, linger_s=0.2)
    for event in events(5000):
        sender.offer([event])
    assert sender.flush()
    assert [event["n"] for event in kept.events()] == list(range(5000))
    assert len(kept.payloads) <= 10
    stats = sender.stats()
    assert (stats.accepted, stats.sent, stats.records, stats.buffered) == (5000, 5000, len(kept.payloads), 0)
    sender.close()


def test_a_single_event_waits_no_longer_than_the_linger() -> None:
    """At low load, events should arrive early."""
    kept = Kept()
    sender = BackgroundSender(kept, linger_s=0.05)
    sender.offer(events(1))
    until(lambda: bool(kept.payloads), "the event arrived without a flush, a full record or a close")
    sender.close()


def test_records_stay_below_the_limit_of_the_transport() -> None:
    """Limits are in bytes and in number; a single event above the limit is a record of its own."""
    kept = Kept(max_bytes=1000)
    sender = BackgroundSender(kept)
    sender.offer([*events(50, pad="x" * 90), *events(1, pad="y" * 2000), *events(2)])
    assert sender.flush()
    assert len(kept.events()) == 53
    assert sorted(map(len, kept.payloads))[-2] <= 1000
    sender.close()


def test_overflow_is_dropped_and_counted_and_offer_never_blocks() -> None:
    """While the destination hangs, the application runs at full speed."""
    broken = Broken()
    broken.gate.clear()
    sender = BackgroundSender(broken, max_buffered=100, linger_s=0.01)
    for event in events(1000):
        sender.offer([event])
    assert broken.payloads == []  # an offer that had waited would have ended with a record sent
    stats = sender.stats()
    assert (stats.accepted, stats.dropped_overflow, stats.buffered) == (100, 900, 100)
    broken.gate.set()
    assert sender.flush()
    assert [event["n"] for event in broken.events()] == list(range(100))
    sender.offer(events(1))
    assert sender.flush()
    assert sender.stats().sent == 101
    sender.close()


def test_a_destination_that_accepts_everything_too_slowly_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """No attempt fails, so that nothing else says that events are missing."""
    slow = Broken()
    slow.gate.clear()
    sender = BackgroundSender(slow, max_buffered=10, linger_s=0.01)
    sender.offer(events(10))
    until(lambda: slow.attempts == 1, "it was tried")
    sender.offer(events(7))
    slow.gate.set()
    assert sender.flush()
    assert [record.getMessage() for record in caplog.records] == [
        "queuewatch: 7 telemetry events were dropped: more than 10 waited to be sent"
    ]
    sender.close()


def test_an_outage_is_logged_with_the_number_of_dropped_events(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each warning says how many were dropped since the one before."""
    monkeypatch.setattr("queuewatch.sender._WARN_EVERY_S", 0.0)
    broken = Broken(later())
    sender = BackgroundSender(broken, max_buffered=10, linger_s=0.01)
    sender.offer(events(10))
    until(lambda: broken.attempts == 1, "it was tried")
    sender.offer(events(7))
    until(lambda: "meanwhile" in caplog.text, "it was logged")
    broken.error = None
    assert sender.flush()
    said = [record.getMessage() for record in caplog.records if record.getMessage().endswith("dropped")]
    assert said == ["queuewatch: telemetry is not sent: the other side is down; meanwhile 7 events were dropped"]
    sender.close()


def test_a_broken_transport_is_retried_until_it_works() -> None:
    """No accepted event is lost, and the reason is visible in the counters."""
    broken = Broken(later())
    sender = BackgroundSender(broken, linger_s=0.01)
    sender.offer(events(3))
    until(lambda: broken.attempts >= 3, "it was tried three times")
    assert sender.stats().last_error == "the other side is down"
    assert not sender.flush(0.05)
    broken.error = None
    assert sender.flush()
    assert len(broken.events()) == 3
    assert sender.stats().send_errors >= 3
    sender.close()


def test_a_permanently_refused_record_is_dropped_and_counted() -> None:
    """Retrying does not help with a payload that the destination cannot parse."""
    broken = Broken(SendError("400", retry=False))
    sender = BackgroundSender(broken, linger_s=0.01)
    sender.offer(events(3))
    assert sender.flush()
    assert sender.stats().dropped_refused == 3
    broken.error = RuntimeError("a fault of the transport's own")
    sender.offer(events(2))
    assert sender.flush()
    assert sender.stats().dropped_refused == 5
    sender.close()


def test_a_record_too_large_for_the_destination_is_halved() -> None:
    """The record is halved until only the event that is too large is left."""

    class Picky(Kept):
        def send(self, payload: bytes) -> None:
            if payload.count(b"\n") > 2 or b"huge" in payload:
                raise SendError("413", retry=False, too_large=True)
            super().send(payload)

    picky = Picky()
    sender = BackgroundSender(picky, linger_s=0.05)
    sender.offer([*events(5), {"type": "huge"}, *events(5)])
    assert sender.flush()
    assert len(picky.events()) == 10
    assert sender.stats().dropped_refused == 1
    sender.close()


def test_an_event_that_json_cannot_represent_is_dropped_alone(caplog: pytest.LogCaptureFixture) -> None:
    """An application's attribute may hold any object. The log says why the event is missing."""
    kept = Kept()
    sender = BackgroundSender(kept)
    sender.offer([{"n": 1}, {"n": object()}, {"n": float("nan")}, {"n": "\ud800"}, {"n": 2}])
    assert sender.flush()
    assert kept.events() == [{"n": 1}, {"n": 2}]
    assert sender.stats().dropped_refused == 3
    (record,) = caplog.records  # at most one a minute
    assert record.getMessage() == (
        "queuewatch: telemetry is not sent: an event cannot be encoded: Object of type object is not JSON serializable"
    )
    assert str(sender.stats().last_error).startswith("an event cannot be encoded: ")
    sender.close()


def test_an_event_that_cannot_be_built_is_dropped_alone() -> None:
    """An event may be given as a function with arguments, which is called in the sender's thread."""
    kept = Kept()
    sender = BackgroundSender(kept)
    threads: list[str] = []

    def build(n: int) -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return {"n": 1 // n}

    sender.offer([(build, 1), {"n": 2}, (build, 0), (build, 1)])
    assert sender.flush()
    assert [event["n"] for event in kept.events()] == [1, 2, 1]
    assert sender.stats().dropped_refused == 1
    assert set(threads) == {SENDER_THREAD}
    sender.close()


def test_a_sender_thread_that_ended_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ended the thread, telemetry continues with the next call."""
    ended: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    broken = Broken(SystemExit())  # type: ignore[arg-type]
    sender = BackgroundSender(broken, linger_s=0.01)
    sender.offer(events(1))
    until(lambda: bool(ended), "the thread ended")
    assert ended[0].exc_type is SystemExit
    broken.error = None
    sender.offer(events(2))
    assert sender.flush()
    assert len(broken.events()) == 2
    sender.close()


def test_an_event_offered_just_before_closing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last call of a program may come after the thread has looked for events for the last time."""
    kept = Kept()
    sender = BackgroundSender(kept, linger_s=0.01)
    looked = threading.Event()
    rest = sender._rest

    def look(waiters: list[Any]) -> None:
        looked.set()
        until(lambda: sender._box.closed, "the sender is closed")
        rest(waiters)

    monkeypatch.setattr(sender, "_rest", look)
    sender.offer(events(1))
    assert looked.wait(10)
    sender.offer(events(1))
    sender.close(10)
    assert len(kept.events()) == 2


def test_a_flush_while_the_sender_takes_its_events_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush rings the bell just before the thread clears it; nothing would ring it again."""
    kept = Kept()
    sender = BackgroundSender(kept, linger_s=0.01)
    clear_bell, flushed = sender._box.clear_bell, []
    waiting = threading.Thread(target=lambda: flushed.append(sender.flush(10)))

    def clear() -> None:
        if not waiting.ident:
            waiting.start()
            until(lambda: bool(sender._box.waiters()) and not sender._box._bell.empty(), "the flush has rung the bell")
        clear_bell()

    monkeypatch.setattr(sender._box, "clear_bell", clear)
    sender.offer(events(1))
    until(lambda: bool(waiting.ident), "the thread clears the bell")
    waiting.join()
    assert flushed == [True]
    sender.close()


def test_a_flush_does_not_wait_for_what_is_offered_meanwhile() -> None:
    """Under load something always is: a handler of SIGTERM would use up its deadline although all of its events were sent."""

    class Busy(Kept):
        def send(self, payload: bytes) -> None:
            super().send(payload)
            sender.offer([{"type": "meanwhile"}])

    transport = Busy()
    sender = BackgroundSender(transport, linger_s=0.01)
    sender.offer([{"type": "before"}])
    assert sender.flush(2)
    assert transport.events()[0] == {"type": "before"}
    until(lambda: len(transport.payloads) > 3, "what was offered meanwhile is sent without another flush")
    sender.close(1)


def test_nothing_is_tried_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without threads, at the end of the interpreter, each attempt holds up the exit: one of ten may, if it began in time."""

    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't create new thread at interpreter shutdown")

    class Slow(Broken):
        def send(self, payload: bytes) -> None:
            threading.Event().wait(0.2)
            super().send(payload)

    slow = Slow(later())
    sender = BackgroundSender(slow, max_batch=1)
    monkeypatch.setattr("queuewatch.sender.threading.Thread", NoThread)
    sender.offer(events(10))
    sender.close(0.1)
    assert (slow.attempts, sender.stats().dropped_at_exit) == (1, 10)


def test_without_time_nothing_is_sent_at_exit() -> None:
    """The documentation of `exit_deadline_s` says so of 0."""
    kept = Kept()
    sender = BackgroundSender(kept, linger_s=60, exit_deadline_s=0)
    sender.offer(events(1))
    sender.close()
    assert (kept.payloads, sender.stats().dropped_at_exit) == ([], 1)


def test_several_destinations_share_the_deadline_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that watches for several waits no longer; what its own exit handlers take in between does not count."""
    now_s, given = [100.0], []

    def dead(_sender: BackgroundSender, within_s: float) -> None:
        given.append(within_s)
        now_s[0] += within_s

    senders = [BackgroundSender(Kept(), exit_deadline_s=deadline_s) for deadline_s in (2, 2, 5, 0)]
    senders[0]._thread = threading.current_thread()
    monkeypatch.setattr("queuewatch.sender._spent_at_exit_s", 0.0)
    monkeypatch.setattr("queuewatch.sender.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(BackgroundSender, "flush", dead)
    monkeypatch.setattr(BackgroundSender, "_close", lambda sender, deadline_s, _grace_s: dead(sender, deadline_s))
    senders[0]._flush_at_exit()
    now_s[0] += 30
    for sender in senders:
        sender._close_at_exit()
    assert given == [2, 0, 0, 3, 0]


@pytest.mark.parametrize("flush", [queuewatch.flush, lambda _: flush_all()], ids=["flush", "SIGTERM"])
def test_all_senders_are_flushed_at_the_same_time(monkeypatch: pytest.MonkeyPatch, flush: Callable[[float], bool]) -> None:
    """Two dead destinations come first: they do not double the timeout, and the third gets its events."""
    kept = Kept()
    transports = [Broken(later()), Broken(later()), kept]
    senders = [BackgroundSender(transport, linger_s=600, exit_deadline_s=0.5) for transport in transports]
    monkeypatch.setattr("queuewatch.sender._senders", WeakKeyDictionary(dict.fromkeys(senders)))
    shared = {n: SharedSender(n, sender, HandleMap(1)) for n, sender in enumerate(senders)}
    monkeypatch.setattr("queuewatch.sharing._shared", shared)
    waits_s: list[float] = []
    wait_until_empty = Mailbox.wait_until_empty

    def recorded(box: Mailbox, timeout_s: float) -> bool:
        waits_s.append(max(0.0, timeout_s))
        return wait_until_empty(box, timeout_s)

    monkeypatch.setattr(Mailbox, "wait_until_empty", recorded)
    for sender in senders:
        sender.offer(events(1))
    assert not flush(0.5)
    assert sum(waits_s) < 0.6
    assert len(kept.events()) == 1
    for sender in senders:
        sender.close(0)


def test_all_senders_are_flushed_while_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM may come while another thread watches its first session; the events of the others are sent."""
    monkeypatch.setattr("queuewatch.sender._senders", WeakKeyDictionary())
    kept = Kept()
    senders = [BackgroundSender(kept, linger_s=600) for _ in range(2)]
    for sender in senders:
        sender.offer(events(1))

    def make_one() -> None:
        if len(senders) < 20:
            senders.append(BackgroundSender(Kept(), exit_deadline_s=0))

    with before_each_line(make_one, "queuewatch/sender.py", "weakref"):
        assert flush_all()
    assert (len(senders), len(kept.events())) == (20, 2)
    for sender in senders:
        sender.close(0)


def test_flushing_for_a_dead_destination_again_and_again_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may flush after each job, and the outage may last for days."""
    sender = BackgroundSender(Broken(later()), exit_deadline_s=0)
    monkeypatch.setattr("queuewatch.sharing._shared", {0: SharedSender(0, sender, HandleMap(1))})
    sender.offer(events(1))
    for _ in range(100):
        queuewatch.flush(0)
    assert len(sender._box.waiters()) <= 2
    sender.close(0)


def test_a_limit_of_time_may_be_infinite() -> None:
    """The standard library's own limit, some hundred years, is an error there."""
    kept = Kept()
    sender = BackgroundSender(kept, linger_s=0.01, exit_deadline_s=math.inf)
    sender.offer(events(1))
    assert sender.flush(math.inf)
    sender.offer(events(1))
    sender.close()
    assert len(kept.events()) == 2
    assert sender.stats().buffered == 0


def test_closing_keeps_its_deadline_and_counts_unsent_events() -> None:
    """An application must be able to exit while the broker is down."""
    broken = Broken(later())
    sender = BackgroundSender(broken, linger_s=0.01, exit_deadline_s=3_600)
    sender.offer(events(7))
    sender.close(0.3)  # with any other deadline, this test would not end
    assert sender.stats().dropped_at_exit == 7
    sender.offer(events(2))
    assert sender.stats().dropped_overflow == 2
    assert broken.closed == 1


def test_a_thread_whose_start_was_interrupted_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a signal handler calls sys.exit during the start, the thread runs unregistered and holds the last event."""

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            raise SystemExit

        def is_alive(self) -> bool:
            return False

    broken = Broken()
    broken.gate.clear()
    sender = BackgroundSender(broken, linger_s=0.01)
    with monkeypatch.context() as patched:
        patched.setattr("queuewatch.sender.threading.Thread", Interrupted)
        with pytest.raises(SystemExit):
            sender.offer(events(1))
    until(lambda: broken.attempts == 1, "it was tried")

    work = sender._work

    def waited_for(within_s: float = -1) -> None:
        broken.gate.set()  # only now: `close` waits for the thread
        work(within_s)

    monkeypatch.setattr(sender, "_work", waited_for)
    sender.close(10)
    assert len(broken.events()) == 1


def test_unsent_events_at_exit_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Events that the destination had not confirmed at the deadline are not lost silently."""
    broken = Broken()
    broken.gate.clear()
    sender = BackgroundSender(broken, linger_s=0.01)
    sender.offer(events(1))
    until(lambda: broken.attempts == 1, "it was tried")
    sender.offer(events(2))
    sender.close(0.1)
    assert [record.getMessage() for record in caplog.records] == [
        "queuewatch: 3 telemetry events were not sent within 0.1 s at exit"
    ]
    assert (sender.stats().dropped_at_exit, sender.stats().buffered) == (2, 1)
    broken.gate.set()


def test_retry_after_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender waits for as long as the server asks, here 40 seconds, and no longer."""
    now_s, tried_s = [0.0], []

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    class Busy(Kept):
        def send(self, payload: bytes) -> None:
            tried_s.append(now_s[0])
            if len(tried_s) == 1:
                raise SendError("429", retry=True, retry_after_s=40)
            super().send(payload)

    monkeypatch.setattr("queuewatch.sender.time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    sender = BackgroundSender(Busy(), linger_s=0.01)
    sender.offer(events(1))
    assert sender.flush()
    sender.close()
    assert tried_s == [0, 40]


def test_many_threads_lose_nothing() -> None:
    """Counters and buffer stay correct under contention."""
    kept = Kept()
    sender = BackgroundSender(kept, max_buffered=100_000, linger_s=0.01)

    def offer(thread: int) -> None:
        for n in range(2000):
            sender.offer([{"t": thread, "n": n}])

    threads = [threading.Thread(target=offer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sender.flush()
    assert sender.stats().accepted == sender.stats().sent == 16_000
    found = kept.events()
    assert len(found) == 16_000
    for n in range(8):
        assert [event["n"] for event in found if event["t"] == n] == list(range(2000))
    sender.close()


@pytest.mark.parametrize("wrong", [b"", b"x"])
def test_payloads_are_ndjson(wrong: bytes) -> None:
    """There is one line per event, and each line is terminated."""
    kept = Kept()
    sender = BackgroundSender(kept)
    sender.offer([{"text": "line\nbreak é", "wrong": wrong.decode()}])
    assert sender.flush()
    [payload] = kept.payloads
    assert payload.endswith(b"}\n")
    assert payload.count(b"\n") == 1
    assert json.loads(payload)["text"] == "line\nbreak é"
    sender.close()
