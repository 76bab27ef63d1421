"""`watch` and `unwatch`: connect an application's boto3 objects to a telemetry sender."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from queuewatch.arguments import check_arguments
from queuewatch.consumer_name import consumer_name
from queuewatch.environment import is_disabled
from queuewatch.hooks import SqsHooks
from queuewatch.lineage import Lineage
from queuewatch.log import log_warning
from queuewatch.registration import Registration
from queuewatch.sharing import Limits, SharedSender, acquire, in_use, release
from queuewatch.sqs_events import Translator
from queuewatch.transports import Transport


class Watch:
    """One watched client, session or resource."""

    def __init__(
        self,
        emitter: Any = None,
        hooks: SqsHooks | None = None,
        translator: Translator | None = None,
        sender: SharedSender | None = None,
    ) -> None:
        # A weak reference, because the table of watches must not keep alive a client that the application has dropped.
        self._emitter = None if emitter is None else weakref.ref(emitter)
        self._hooks = hooks
        self._translator = translator
        self._sender = sender

    @property
    def active(self) -> bool:
        """Whether calls are observed; False after `unwatch` or if telemetry is turned off."""
        return self._hooks is not None and self._hooks.active

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until all events so far are sent; return False on a timeout.

        Use it where the process may be frozen or killed next, such as at the end of an AWS Lambda invocation.
        """
        return self._sender is None or self._sender.sender.flush(timeout_s)

    def stats(self) -> dict[str, int | str | None]:
        """Return the counters: observed calls, events sent and dropped by reason, errors in hooks and in sending, handles."""
        if self._sender is None:
            return {"calls": 0}
        return {**self._own_stats(), **self._sender.stats()}

    def _own_stats(self) -> dict[str, int]:
        """Return the counters of this watch alone; the others belong to a sender that it may share."""
        return {
            "calls": 0 if self._hooks is None else self._hooks.calls,
            "hook_errors": 0 if self._hooks is None else self._hooks.errors,
            "unknown_handles": 0 if self._translator is None else self._translator.unknown_handles,
        }

    def unwatch(self) -> None:
        """Stop observing calls; recorded events are still sent, within the exit deadline."""
        with _lock:
            if not self.active or self._hooks is None or self._sender is None:
                return
            emitter = self._emitter() if self._emitter is not None else None
            self._hooks.active = False
            if emitter is not None and _watches.get(emitter) is self:
                del _watches[emitter]
            is_last = release(self._sender)
        if is_last:
            self._sender.sender.close()


_lock = threading.RLock()
_watches: weakref.WeakKeyDictionary[Any, Watch] = weakref.WeakKeyDictionary()
_registrations: weakref.WeakKeyDictionary[Any, Registration] = weakref.WeakKeyDictionary()
"""By emitter, also of those that are no longer watched."""


def watch(
    session_or_client: Any = None,
    to: str | Transport | None = None,
    *,
    consumer: str | None = None,
    scope: str | None = None,
    lineage_attribute: str | None = None,
    dead_letter_queues: Mapping[str, str] | None = None,
    max_buffered: int = 20_000,
    max_batch: int = 1_000,
    linger_s: float = 0.2,
    max_handles: int = 100_000,
    exit_deadline_s: float = 2.0,
) -> Watch:
    """Send telemetry of every SQS call made through a boto3 client, session or resource.

    A session covers the clients and resources created from it since it was first watched; None means boto3's default session.
    `to`: `kafka://host:9092/topic`, `spool:/folder`, `http(s)://host:9400/api/v1/events`, `sqs:<queue>`, or a `Transport`;
    default: QUEUEWATCH_TO of the environment. `consumer` names this process (default: QUEUEWATCH_CONSUMER, else host and process
    id), `scope` replaces the `account/region` of the queue's URL. `lineage_attribute` is a message attribute with the sender's
    own id, which links a redriven message to the original; `dead_letter_queues` maps queues to their dead-letter queues.

    The application's calls and responses do not change, and never wait for telemetry: beyond `max_buffered`, events are dropped
    and counted, see `Watch.stats`. With QUEUEWATCH_DISABLED=1 nothing is done at all. When the interpreter exits, buffered events
    have `exit_deadline_s` to be sent; the same applies when SIGTERM would end the process by default (an application with its own
    handler, or one that exits with `os._exit`, should call `flush`). With 0, nothing is sent then and SIGTERM is not handled.
    Watching the same object again replaces the previous watch, and the watch of a client replaces that of its session for this
    client: each call is reported once. Raises `ValueError` or `TypeError` for a wrong argument, and where neither `to` nor the
    environment names a destination; a destination that does not answer is not an error, nor is anything else in the environment.
    A client of a service other than SQS only causes a warning in the log.
    """
    if is_disabled():
        return Watch()
    check_arguments(
        {"consumer": consumer, "scope": scope},
        {"max_buffered": max_buffered, "max_batch": max_batch, "max_handles": max_handles},
        {"linger_s": linger_s, "exit_deadline_s": exit_deadline_s},
        lineage_attribute,
    )
    emitter = _emitter_of(session_or_client)
    _warn_of_another_service(session_or_client)
    lineage = Lineage(lineage_attribute, dead_letter_queues or {}) if lineage_attribute else None
    shared = acquire(to, Limits(max_buffered, max_batch, linger_s, exit_deadline_s, max_handles))
    if shared is None:
        return Watch()
    with _lock:
        translator = Translator(shared.handles, consumer_name(consumer), scope=scope, lineage=lineage)
        hooks = SqsHooks(translator, shared.sender.offer, lineage_attribute=lineage_attribute)
        registration = _registrations.get(emitter)
        if registration is None:
            registration = _registrations[emitter] = Registration(emitter)
        registration.hooks = hooks
        former = _watches.get(emitter)
        made = _watches[emitter] = Watch(emitter, hooks, translator, shared)
    if former is not None:
        former.unwatch()
    return made


def unwatch(session_or_client: Any = None) -> None:
    """Undo `watch`; no effect on an object that is not watched."""
    found = _watches.get(_emitter_of(session_or_client))
    if found is not None:
        found.unwatch()


def stats() -> dict[str, dict[str, int | str | None]]:
    """Return `Watch.stats` of everything that reports in this process, pull consumers too, added by destination."""
    found: dict[str, dict[str, int | str | None]] = {}
    for shared in in_use():
        _add(found.setdefault(shared.sender.transport.name, {**Watch()._own_stats()}), shared.stats())
    # Iterating the table would fail if another thread, or a signal handler, watches something meanwhile; `keyrefs` is one step.
    emitters = [reference() for reference in _watches.keyrefs()]
    for made in [_watches.get(emitter) for emitter in emitters if emitter is not None]:
        if made is not None and made._sender is not None:
            _add(found.setdefault(made._sender.sender.transport.name, {}), made._own_stats())
    return found


def _add(total: dict[str, int | str | None], counters: Mapping[str, int | str | None]) -> None:
    for name, value in counters.items():
        before = total.get(name)
        if isinstance(before, int) and isinstance(value, int):
            total[name] = before + value
        elif value is not None or name not in total:  # the last error of one sender, if another one has none
            total[name] = value


def _emitter_of(watched: Any) -> Any:
    """Return the botocore event emitter of a client, a resource, a boto3 session or a botocore session."""
    if watched is None:
        import boto3

        if boto3.DEFAULT_SESSION is None:
            boto3.setup_default_session()
        watched = boto3.DEFAULT_SESSION
    meta = getattr(watched, "meta", None)
    for owner in (meta, getattr(getattr(meta, "client", None), "meta", None), watched):
        events = getattr(owner, "events", None)
        if hasattr(events, "register_first"):
            return events
    if hasattr(watched, "get_component"):
        return watched.get_component("event_emitter")
    raise TypeError(f"cannot watch {type(watched).__name__}: give a boto3 client, resource or session")


def _warn_of_another_service(watched: Any) -> None:
    """Warn if a client or resource makes no calls of SQS. A session may still create a client that does."""
    meta = getattr(watched, "meta", None)
    of_client = getattr(getattr(meta, "client", None), "meta", meta)
    service = getattr(getattr(of_client, "service_model", None), "service_name", None)
    if isinstance(service, str) and service != "sqs":
        log_warning("watch was given a client of %s, not of SQS: none of its calls is reported", service)


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 -- one per process: the parent's may be held
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
