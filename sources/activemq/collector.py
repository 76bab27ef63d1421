"""The collector: keeps a connection to one broker and turns what it says into telemetry events."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import ClassVar, Self

from sources.activemq.config import ActiveMQCollectorConfig, Address
from sources.activemq.connection import Session, now_ms, open_session
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.findings import Finding
from sources.activemq.inbox import Inbox
from sources.activemq.lifecycle import Lifecycle, Limits
from sources.activemq.lore import QueueLore
from sources.activemq.watch import Watch
from sources.events import Emit

log = logging.getLogger(__name__)

_TAKE_WITHIN_S = 0.1
_LOOK_EVERY_S = 0.5
"""How often to see whether something new was found out about the broker."""
_PAUSE_S = 0.02
_FEW = 500
"""After fewer frames than this it is worth waiting for more: every hand-over wakes two threads."""
_STABLE_AFTER_S = 30.0
"""A connection that lasted this long was a success: the next attempt starts the back-off afresh."""


class ActiveMQCollector:
    """Watches one broker over STOMP until told to stop.

    Heartbeats are sent only while the broker is being heard: a broker that cannot be reached shows as a
    collector that fell silent."""

    kind: ClassVar[str] = "activemq"

    def __init__(self, config: ActiveMQCollectorConfig) -> None:
        self._config = config
        limits = Limits(grace_ms=round(config.settle_grace_s * 1000), max_in_flight=config.max_tracked_messages)
        lore = QueueLore(config.is_dead_letter_queue, config.is_ordered)
        self.lifecycle = Lifecycle(config.broker_name, lore, limits)
        """What is known of the broker's messages and consumers; kept over reconnections."""
        self.findings: list[Finding] = []
        """What the last look at the broker's preparation found."""

    @classmethod
    def from_config(cls, config: ActiveMQCollectorConfig) -> Self:
        """A collector for what `config` describes."""
        return cls(config)

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Watch until `stop` is set, reconnecting for ever. Never raises for what the broker or the network
        does."""
        # Every failed attempt is told below, once and with what to do.
        logging.getLogger("stomp.py").setLevel(logging.CRITICAL)
        waits = self._waits()
        addresses = itertools.cycle(self._config.parsed_addresses())
        while not stop.is_set():
            address = next(addresses)
            started_s = time.monotonic()
            try:
                self._watch(address, emit, stop)
            except BrokerUnavailable as error:
                if time.monotonic() - started_s > _STABLE_AFTER_S:
                    waits = self._waits()
                wait_s = next(waits)
                log.warning("ActiveMQ: %s; next attempt in %.1f s", error, wait_s)
                stop.wait(wait_s)
        # Ends whose grace still runs would be told by nobody later.
        if last := self.lifecycle.flush(now_ms() + round(self._config.settle_grace_s * 1000)):
            emit(last)

    def _watch(self, address: Address, emit: Emit, stop: threading.Event) -> None:
        """One connection's life. Raises `BrokerUnavailable` when it ends otherwise than by `stop`."""
        inbox = Inbox(self._config.max_waiting_advisories)
        session: Session | None = None
        next_look_s = 0.0
        try:
            session = open_session(self._config, address, inbox)
            log.info("ActiveMQ: connected to %s (%s)", address, session.server)
            watch = Watch(self._config, session, self.lifecycle, emit)
            watch.start(time.monotonic(), now_ms())
            while not stop.is_set():
                taken = inbox.take(_TAKE_WITHIN_S)
                for incoming in taken:
                    watch.take(incoming)
                if len(taken) < _FEW:
                    time.sleep(_PAUSE_S)
                watch.tick(time.monotonic(), now_ms())
                if time.monotonic() >= next_look_s:
                    next_look_s = time.monotonic() + _LOOK_EVERY_S
                    self._tell(watch.findings())
                silent_s = session.silent_s()
                if silent_s > self._config.silence_timeout_s:
                    raise BrokerUnavailable(str(address), f"nothing heard for {silent_s:.0f} s")
            watch.stop()
        finally:
            inbox.close()
            if session is not None:
                session.close()

    def _tell(self, findings: list[Finding] | None) -> None:
        """Log what is new among the findings."""
        if findings is None:
            return
        for finding in findings:
            if finding.level == "ok" or finding in self.findings:
                continue
            level = logging.ERROR if finding.level == "error" else logging.WARNING
            log.log(level, "ActiveMQ: %s%s", finding.what, f"\n{finding.fix}" if finding.fix else "")
        self.findings = findings

    def _waits(self) -> Iterator[float]:
        """Seconds to wait after one failure after another: doubling, with jitter, up to a limit."""
        wait_s = self._config.reconnect_first_s
        while True:
            yield wait_s * random.uniform(0.5, 1.0)
            wait_s = min(wait_s * 2, self._config.reconnect_most_s)
