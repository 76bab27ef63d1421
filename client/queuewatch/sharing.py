"""One sender for everything in this process that reports to the same destination with the same limits."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from queuewatch.celery_exit import flush_before_celery_exit
from queuewatch.environment import TO_VARIABLE
from queuewatch.handles import HandleMap
from queuewatch.log import log_error
from queuewatch.sender import BackgroundSender, flush_all, flush_within
from queuewatch.sigterm import flush_before_sigterm, leave_sigterm_alone
from queuewatch.transports import Transport, open_transport


@dataclass(frozen=True)
class Limits:
    """The limits of a sender and its handle map."""

    max_buffered: int = 20_000
    max_batch: int = 1_000
    linger_s: float = 0.2
    exit_deadline_s: float = 2.0
    max_handles: int = 100_000


class SharedSender:
    """A sender and its handle map.

    The map is shared because an application may receive with one client and delete with another.
    """

    def __init__(self, key: Any, sender: BackgroundSender, handles: HandleMap) -> None:
        self.key = key
        self.sender = sender
        self.handles = handles
        self.users = 0

    def stats(self) -> dict[str, int | str | None]:
        """Return the counters that all users share: those of the handle map and of the sender."""
        return {"handles": len(self.handles), "handles_evicted": self.handles.evicted, **vars(self.sender.stats())}


_lock = threading.RLock()
_shared: dict[Any, SharedSender] = {}


def acquire(to: str | Transport | None, limits: Limits) -> SharedSender | None:
    """Return the sender for a destination, by default that of the environment; None if that one is unusable, which is logged.

    It is flushed before SIGTERM or Celery ends the process. Raises `ValueError` for an invalid `to`, or without any destination.
    """
    transport, destination = _transport_of(to)
    if transport is None:
        return None
    key = (destination, limits)
    with _lock:
        shared = _shared.get(key)
        if shared is None:
            sender = BackgroundSender(
                transport,
                max_buffered=limits.max_buffered,
                max_batch=limits.max_batch,
                linger_s=limits.linger_s,
                exit_deadline_s=limits.exit_deadline_s,
            )
            shared = _shared[key] = SharedSender(key, sender, HandleMap(limits.max_handles))
        shared.users += 1
    if limits.exit_deadline_s > 0:
        flush_before_sigterm(flush_all)
        flush_before_celery_exit(flush_all)
    return shared


def release(shared: SharedSender) -> bool:
    """Give a sender back once; return True if this was its last user, who has to close it."""
    with _lock:
        shared.users -= 1
        is_last = shared.users == 0
        if is_last:
            _shared.pop(shared.key, None)
        if not _shared:
            leave_sigterm_alone()
    return is_last


def in_use() -> list[SharedSender]:
    """Return every sender that has a user, once."""
    return list(_shared.values())


def flush(timeout_s: float = 5.0) -> bool:
    """Wait until everything that this process has reported so far is sent; return False on a timeout."""
    return flush_within([shared.sender for shared in in_use()], timeout_s)


def _transport_of(to: str | Transport | None) -> tuple[Transport | None, Any]:
    """Return the transport and its identity, or None if the environment names no usable one."""
    if isinstance(to, Transport):
        return to, id(to)
    if to is not None:
        return open_transport(to), to
    to = os.environ.get(TO_VARIABLE)
    if not to:
        raise ValueError(f"no telemetry destination: give `to` or set {TO_VARIABLE}")
    try:
        return open_transport(to), to
    except ValueError as error:  # a typo in a deployment must not keep the application from starting
        log_error("%s: %s; no telemetry is sent", TO_VARIABLE, error)
        return None, None


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 -- one per process: the parent's may be held
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
