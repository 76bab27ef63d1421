"""Sends events from a separate thread, with bounded memory and time: the application never waits for it."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from queuewatch.backoff import Backoff
from queuewatch.events import Event, Unbuilt, built, encode_line
from queuewatch.log import log_warning
from queuewatch.mailbox import Mailbox
from queuewatch.signal_handlers import raise_if_of_signal_handler, suppress
from queuewatch.transports import SendError, Transport
from queuewatch.transports.base import SENDER_THREAD
from queuewatch.transports.secrets import redact

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 30.0
_WARN_EVERY_S: Final = 60.0
_GRACE_S: Final = 0.5
"""After the deadline, a sender has this long to give up and to close its connection."""


@dataclass
class SenderStats:
    """A snapshot of the counters of offered events.

    `dropped_overflow`: the buffer was full; `dropped_refused`: the destination will never accept them; `dropped_at_exit`: the
    process ended first.
    """

    accepted: int = 0
    sent: int = 0
    records: int = 0
    dropped_overflow: int = 0
    dropped_refused: int = 0
    dropped_at_exit: int = 0
    send_errors: int = 0
    buffered: int = 0
    last_error: str | None = None


class BackgroundSender:
    """Collects events into NDJSON records and sends them in a daemon thread.

    `offer` never blocks, waits or raises: beyond `max_buffered` events it drops and counts them. A record is sent when it has
    `max_batch` events, or `linger_s` after its first event. While the destination is down, the sender backs off and keeps trying;
    at exit it has `exit_deadline_s` for the remaining events. The thread starts with the first event, and again in a forked
    child, which does not send the parent's events.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        max_buffered: int = 20_000,
        max_batch: int = 1_000,
        linger_s: float = 0.2,
        exit_deadline_s: float = 2.0,
    ) -> None:
        self.transport = transport
        self._max_buffered = max_buffered
        self._max_batch = max_batch
        self._linger_s = linger_s
        self.exit_deadline_s = exit_deadline_s
        self._warned_s = float("-inf")
        self._reset()
        importlib.import_module("encodings.idna")  # host name lookup would import it in the sender's thread
        with suppress(Exception):  # `send` will fail in the same way and report it
            transport.prepare()
        _senders[self] = None
        # Now, so that it runs after the application's own exit handlers, which may still call SQS. A handler that is registered
        # during the exit is never called.
        atexit.register(self._close_at_exit)

    def _reset(self) -> None:
        """Set the state from before the thread starts: in a new sender, and in a forked child."""
        self._box = Mailbox(self._max_buffered, self._max_batch)
        self._stats = SenderStats()
        # Reentrant, and never taken by `offer`: the sender's thread and readers of the counters share it.
        self._counting = threading.RLock()
        self._starting = threading.RLock()
        self._running = threading.Lock()
        self._give_up_s: float | None = None
        self._overflow_said = 0
        self._ended = False
        self._thread: threading.Thread | None = None
        self._finalizer_registered = False

    def offer(self, events: Sequence[Event | Unbuilt]) -> None:
        """Queue events for sending, or count them as dropped. Takes a few microseconds, whatever the transport does."""
        _notice_fork()
        if self._box.offer(events) and self._thread is None:
            self._start()

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything offered so far is sent and visible; return False on a timeout.

        May be called in a signal handler.
        """
        return not self._begin_flush() or self._box.wait_until_empty(timeout_s)

    def hurry(self) -> None:
        """Send everything offered so far without lingering, and do not wait for it. May be called in a signal handler."""
        if self._begin_flush():
            self._box.hurry()

    def _begin_flush(self) -> bool:
        """Start the thread if it is needed; return False if there is nothing to send."""
        _notice_fork()
        if self._thread is None and not self._box:
            return False
        if self._thread is None or not self._thread.is_alive():
            self._start()
        return True

    def close(self, deadline_s: float | None = None) -> None:
        """Send remaining events within `deadline_s` (default: the exit deadline) and count the rest as dropped.

        Events offered afterwards are dropped.
        """
        _notice_fork()
        self._close(self.exit_deadline_s if deadline_s is None else deadline_s, _GRACE_S)

    def _close(self, deadline_s: float, grace_s: float) -> None:
        within_s = min(deadline_s + grace_s, threading.TIMEOUT_MAX)
        thread = self._thread
        self._give_up_s = time.monotonic() + deadline_s
        self._box.closed = True
        self._box.ring()
        if thread is not None and thread.is_alive():
            thread.join(within_s)
        elif self._box or self._running.locked():
            # Threads cannot be started during interpreter shutdown, so send in this one. If an exception interrupted a thread's
            # start, that thread may be running unregistered with the last events; `_work` waits for it.
            self._work(within_s)
        with self._counting:
            self._stats.dropped_at_exit += self._box.clear()
            lost = self._stats.dropped_at_exit + self._box.in_hand
        if lost and self._may_warn():
            log_warning("%d telemetry events were not sent within %g s at exit", lost, round(_spent_at_exit_s + deadline_s, 1))
        self._box.emptied(self._box.waiters())
        atexit.unregister(self._close_at_exit)
        atexit.unregister(self._flush_at_exit)

    def stats(self) -> SenderStats:
        """Return the current counters."""
        with self._counting:
            made = replace(self._stats, dropped_overflow=self._box.overflow)
            made.buffered = len(self._box) + self._box.in_hand
        made.accepted = made.sent + made.dropped_refused + made.dropped_at_exit + made.buffered
        return made

    def _start(self) -> None:
        # If another thread is already starting it, leave it to that thread. A signal handler may re-enter this reentrant lock:
        # the code it interrupts continues only afterwards, and until then nothing else would start the thread that `flush` in
        # the handler waits for.
        if not self._starting.acquire(blocking=False):
            return
        try:
            if self._closing() or (self._thread is not None and self._thread.is_alive()):
                return
            if not self._finalizer_registered:  # first, as a signal handler may raise SystemExit at any step of the start
                self._register_finalizer()
            self._box.renew_bell()
            thread = threading.Thread(target=self._work, name=SENDER_THREAD, daemon=True)
            try:
                self._thread = thread
                thread.start()
            except BaseException as error:
                if not thread.is_alive() and self._thread is thread:
                    self._thread = None  # otherwise `offer` would not start another one
                raise_if_of_signal_handler(error)
                if not isinstance(error, RuntimeError):  # it means the interpreter is exiting: the exit flush sends the rest
                    raise
        finally:
            self._starting.release()

    def _register_finalizer(self) -> None:
        # Children of multiprocessing exit without running atexit.
        util = sys.modules.get("multiprocessing.util")
        process = sys.modules.get("multiprocessing.process")
        if util is not None and process is not None and process.parent_process() is not None:
            util.Finalize(self, _close_weakly, args=(weakref.ref(self),), exitpriority=100)
        self._finalizer_registered = True

    def _flush_at_exit(self) -> None:
        _notice_fork()
        thread = self._thread
        if thread is None or not thread.is_alive() or self.exit_deadline_s <= 0:
            return  # `close` does the rest
        self._wait_at_exit(self.flush)

    def _close_at_exit(self) -> None:
        _notice_fork()
        grace_s = _GRACE_S / max(1, len(_senders))  # together they delay the exit no longer than one
        self._wait_at_exit(lambda within_s: self._close(within_s, grace_s))

    def _wait_at_exit(self, wait: Callable[[float], object]) -> None:
        """Wait for what the waits of all senders have left of the deadline; the application's exit handlers do not count."""
        global _spent_at_exit_s  # noqa: PLW0603 -- one per process
        began_s = time.monotonic()
        for sender in _living():
            if sender.exit_deadline_s > 0:
                sender._box.hurry()  # the others send meanwhile, because afterwards there may be no time left
        with contextlib.suppress(Exception):
            wait(max(0.0, self.exit_deadline_s - _spent_at_exit_s))
        _spent_at_exit_s += time.monotonic() - began_s

    # In the thread

    def _work(self, within_s: float = -1) -> None:
        """Run the sender; a second thread, from an interrupted start, waits here and takes over when the first one ends."""
        running = self._running
        if not running.acquire(timeout=within_s):
            return
        try:
            if not self._ended:
                self._run()
        finally:
            self._thread = None  # `offer` starts another one
            running.release()

    def _run(self) -> None:
        box = self._box
        while True:
            if not box.wait(self._due_s()):
                self._try(self.transport.flush)
                continue
            box.linger(self._linger_s)
            box.clear_bell()
            # Read after the bell is cleared, because whoever comes later rings it again; and before draining, so that everything
            # offered before is sent.
            waiters = box.waiters()
            closing = self._closing()
            self._drain(len(box))
            self._rest(waiters)
            if closing:
                self._try(self.transport.flush)
                self.transport.close()
                self._ended = True
                return

    def _drain(self, pending: int) -> None:
        """Send the pending events.

        Events offered in the meantime that do not fill a record wait for their own linger time. Otherwise, under load, when the
        application offers as fast as this thread sends, every record would hold only a handful of events. Nor does a waiter wait
        for them: under load, the box would never be empty.
        """
        while taken := self._send_some():
            pending -= taken
            if not self._box or self._closing():
                continue
            if pending <= 0 if self._box.waiters() else len(self._box) < self._max_batch:
                self._box.ring()
                return

    def _rest(self, waiters: list[Any]) -> None:
        """Make sent events visible if there are waiters, and notify them."""
        if not waiters:
            return
        if self._try(self.transport.flush):
            self._box.emptied(waiters)
        elif not self._closing():
            self._box.ring()

    def _send_some(self) -> int:
        """Send up to one batch; return how many events it had, 0 if nothing is left."""
        events = self._box.take(self._max_batch)
        if not events:
            return 0
        lines = [line for event in events if (line := self._encoded(event)) is not None]
        self._count(dropped_refused=len(events) - len(lines))
        for record in _records(lines, self.transport.max_bytes):
            self._deliver(record)
        self._say_overflow()  # here, because under load `_drain` does not end
        return len(events)

    def _encoded(self, offered: Event | Unbuilt) -> bytes | None:
        try:
            return encode_line(built(offered))
        except Exception as error:  # any error costs this event, not the thread
            self._report(error, "an event cannot be encoded: ")
            return None

    def _deliver(self, lines: list[bytes]) -> None:
        """Send one record until it is delivered, refused for good, or the time is up."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            if self._time_is_up():  # an attempt may take much longer than the rest of the deadline
                self._count(dropped_at_exit=len(lines))
                return
            try:
                self.transport.send(b"".join(lines))
            except SendError as error:
                self._report(error)
                if error.too_large and len(lines) > 1:
                    middle = len(lines) // 2
                    self._deliver(lines[:middle])
                    self._deliver(lines[middle:])
                    return
                if not error.retry:
                    break
                pause_s = backoff.pause_s()
                self._pause(error.retry_after_s or pause_s)
            except Exception as error:  # an error in a transport costs its payload, not the thread
                self._report(error)
                break
            else:
                self._count(sent=len(lines), records=1)
                return
        self._count(dropped_refused=len(lines))

    def _pause(self, wait_s: float) -> None:
        """Wait before the next attempt, or until the deadline if that comes first."""
        end_s = time.monotonic() + wait_s
        while (now_s := time.monotonic()) < end_s and not self._time_is_up():
            time.sleep(min(0.05 if self._closing() else 0.25, end_s - now_s))

    def _time_is_up(self) -> bool:
        return self._give_up_s is not None and time.monotonic() >= self._give_up_s

    def _closing(self) -> bool:
        return self._give_up_s is not None

    def _due_s(self) -> float | None:
        try:
            return self.transport.due_s()
        except Exception:
            return None

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as error:
            self._report(error)
            time.sleep(_FIRST_PAUSE_S)
            return False
        return True

    def _count(self, *, sent: int = 0, records: int = 0, dropped_refused: int = 0, dropped_at_exit: int = 0) -> None:
        with self._counting:
            first = sent > 0 and self._stats.sent == 0
            self._stats.sent += sent
            self._stats.records += records
            self._stats.dropped_refused += dropped_refused
            self._stats.dropped_at_exit += dropped_at_exit
            self._box.in_hand = max(0, self._box.in_hand - sent - dropped_refused - dropped_at_exit)
        if first and not self._closing():
            # kafka-python registers an exit handler when it connects. Exit handlers run in reverse order, and what is buffered
            # must be sent before that one closes the producer.
            atexit.register(self._flush_at_exit)

    def _report(self, error: Exception, problem: str = "") -> None:
        text = redact(f"{problem}{str(error) or type(error).__name__}")
        with self._counting:
            self._stats.send_errors += 1
            self._stats.last_error = text
        if self._may_warn():
            lost = self._unsaid_overflow()
            log_warning("telemetry is not sent: %s%s", text, f"; meanwhile {lost} events were dropped" if lost else "")

    def _say_overflow(self) -> None:
        """Warn of events dropped because the buffer was full: a destination may accept all that it gets, but too slowly."""
        if self._box.overflow > self._overflow_said and self._may_warn():
            lost = self._unsaid_overflow()
            log_warning("%d telemetry events were dropped: more than %d waited to be sent", lost, self._max_buffered)

    def _unsaid_overflow(self) -> int:
        lost = self._box.overflow - self._overflow_said
        self._overflow_said += lost
        return lost

    def _may_warn(self) -> bool:
        """Return whether the next warning is due, at most one a minute; if so, start the next minute."""
        now_s = time.monotonic()
        due = now_s - self._warned_s >= _WARN_EVERY_S
        if due:
            self._warned_s = now_s
        return due


def _records(lines: list[bytes], max_bytes: int) -> list[list[bytes]]:
    """Split lines into records of at most `max_bytes`; a longer line is a separate record."""
    records: list[list[bytes]] = []
    size = max_bytes
    for line in lines:
        if size + len(line) > max_bytes:
            records.append([])
            size = 0
        records[-1].append(line)
        size += len(line)
    return records


def _close_weakly(reference: weakref.ref[BackgroundSender]) -> None:
    sender = reference()
    if sender is not None:
        sender._close_at_exit()


_senders: weakref.WeakKeyDictionary[BackgroundSender, None] = weakref.WeakKeyDictionary()
"""All senders of this process, as keys."""


def _living() -> list[BackgroundSender]:
    """Return all senders. An iteration would fail if a thread or a signal handler made one meanwhile; `keyrefs` is one step."""
    found = [reference() for reference in _senders.keyrefs()]
    return [sender for sender in found if sender is not None]


def flush_all() -> bool:
    """Flush all senders of this process within the longest exit deadline; return False on a timeout."""
    senders = _living()
    return flush_within(senders, max((sender.exit_deadline_s for sender in senders), default=0.0))


def flush_within(senders: Sequence[BackgroundSender], timeout_s: float) -> bool:
    """Flush several senders at the same time, so that one with a dead destination costs the others nothing.

    Returns False if they need more than `timeout_s` together.
    """
    end_s = time.monotonic() + timeout_s
    for sender in senders:
        sender.hurry()
    done = [sender.flush(end_s - time.monotonic()) for sender in senders]
    return all(done)


_spent_at_exit_s = 0.0
"""How long the process has waited for its senders at exit."""

_process = os.getpid()
"""The process whose events the senders hold."""


def _notice_fork() -> None:
    """Do in a child what the hook below does, because a server in C, such as uWSGI, may fork without calling Python's hooks."""
    if os.getpid() != _process:
        _after_fork_in_child()


def _after_fork_in_child() -> None:
    global _process, _spent_at_exit_s  # noqa: PLW0603 -- one per process
    _process = os.getpid()
    _spent_at_exit_s = 0.0
    for sender in _living():
        with suppress(Exception):  # of a transport of the application's own
            sender.transport.after_fork()
        sender._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
