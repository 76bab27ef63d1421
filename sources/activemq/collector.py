"""The collector: keeps a connection to one broker and converts its messages to telemetry events."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Iterator
from typing import ClassVar, Self

from queuewatch.backoff import Backoff
from queuewatch.clock import now_ms
from sources.activemq.config import ActiveMQCollectorConfig, Address
from sources.activemq.connection import Session, open_session
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.findings import Finding
from sources.activemq.inbox import Inbox, Incoming
from sources.activemq.lifecycle import Lifecycle, Limits
from sources.activemq.queue_traits import QueueTraits
from sources.activemq.temporary import of_lasting_queues
from sources.activemq.watch import Watch
from sources.events import Emit

log = logging.getLogger(__name__)

_TAKE_WITHIN_S = 0.1
_LOOK_EVERY_S = 0.5
"""The interval for checking whether anything new is known about the broker."""
_REPEAT_S = 300.0
"""A finding whose text changes all the time, because it contains a count, is logged at this interval."""
_PAUSE_S = 0.02
_FEW = 500
"""With fewer frames than this it is worth waiting for more: every hand-over wakes two threads."""
_STABLE_AFTER_S = 30.0
"""A connection that lasted this long was a success: the next attempt restarts the back-off."""


class ActiveMQCollector:
    """Watches one broker over STOMP until it is stopped.

    Heartbeats are sent only while the broker answers: an unreachable broker shows as a silent collector.
    """

    kind: ClassVar[str] = "activemq"

    def __init__(self, config: ActiveMQCollectorConfig) -> None:
        self._config = config
        limits = Limits(grace_ms=round(config.settle_grace_s * 1000), max_in_flight=config.max_tracked_messages)
        traits = QueueTraits(config.is_dead_letter_queue, config.is_ordered)
        self.lifecycle = Lifecycle(config.broker_name, traits, limits)
        """The known messages and consumers of the broker; kept across reconnections."""
        self.findings: list[Finding] = []
        """The findings of the last check of the broker's configuration."""
        self._logged: dict[tuple[str, str], tuple[Finding, float]] = {}
        """Check and level -> what was logged last, and when by a monotonic clock."""

    @classmethod
    def from_config(cls, config: ActiveMQCollectorConfig) -> Self:
        """Create the collector that `config` describes."""
        return cls(config)

    def run(self, emit: Emit, stop: threading.Event) -> None:
        """Watch until `stop` is set, reconnecting without limit.

        Never raises because of the broker or the network.
        """
        backoff = Backoff(self._config.reconnect_first_s, self._config.reconnect_most_s)
        addresses = itertools.cycle(self._config.parsed_addresses())
        while not stop.is_set():
            address = next(addresses)
            started_s = time.monotonic()
            try:
                self._watch(address, emit, stop)
            except BrokerUnavailable as error:
                if time.monotonic() - started_s > _STABLE_AFTER_S:
                    backoff.reset()
                wait_s = backoff.pause_s()
                log.warning("ActiveMQ: %s; next attempt in %.1f s", error, wait_s)
                stop.wait(wait_s)
                # Nothing can contradict an acknowledgement while the broker is away.
                self._flush(emit, now_ms())
        # Ends still in their grace period would otherwise never be reported.
        self._flush(emit, now_ms() + round(self._config.settle_grace_s * 1000))

    def _flush(self, emit: Emit, now_ms: int) -> None:
        if ended := of_lasting_queues(self.lifecycle.flush(now_ms)):
            emit(ended)

    def _watch(self, address: Address, emit: Emit, stop: threading.Event) -> None:
        """Serve one connection. Raises `BrokerUnavailable` when it ends other than by `stop`."""
        inbox = Inbox(self._config.max_waiting_advisories)
        session: Session | None = None
        try:
            session = open_session(self._config, address, inbox)
            log.info("ActiveMQ: connected to %s (%s)", address, session.server)
            self._serve(Watch(self._config, session, self.lifecycle, emit), session, inbox, stop)
        finally:
            inbox.close()
            if session is not None:
                session.close()

    def _serve(self, watch: Watch, session: Session, inbox: Inbox, stop: threading.Event) -> None:
        next_look_s = 0.0
        unread: Iterator[Incoming] = iter(())
        try:
            watch.start(time.monotonic(), now_ms())
            while not stop.is_set():
                taken = inbox.take(_TAKE_WITHIN_S)
                unread = iter(taken)
                for incoming in unread:
                    watch.take(incoming)
                if len(taken) < _FEW:
                    time.sleep(_PAUSE_S)
                watch.tick(time.monotonic(), now_ms())
                if (now_s := time.monotonic()) >= next_look_s:
                    next_look_s = now_s + _LOOK_EVERY_S
                    self._log_findings(watch.findings(), now_s)
                silent_s = session.silent_s()
                if silent_s > self._config.silence_timeout_s:
                    raise BrokerUnavailable(str(session.address), f"nothing heard for {silent_s:.0f} s")
        except BrokerUnavailable:
            watch.stop([*unread, *inbox.take(0)])
            raise
        watch.stop(inbox.take(0))

    def _log_findings(self, findings: list[Finding] | None, now_s: float) -> None:
        """Log the findings that are new, or that have changed since they were logged some minutes ago."""
        if findings is not None:
            self.findings = findings
        current = {(finding.check, finding.level): finding for finding in self.findings if finding.level != "ok"}
        self._logged = {
            pair: (finding, at_s) for pair, (finding, at_s) in self._logged.items() if pair in current or now_s - at_s < _REPEAT_S
        }
        for pair, finding in current.items():
            logged, at_s = self._logged.get(pair, (None, -math.inf))
            if finding == logged or now_s - at_s < _REPEAT_S:
                continue
            self._logged[pair] = finding, now_s
            level = logging.ERROR if finding.level == "error" else logging.WARNING
            log.log(level, "ActiveMQ: %s%s", finding.what, f"\n{finding.fix}" if finding.fix else "")
