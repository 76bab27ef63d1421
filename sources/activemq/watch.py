"""Serve one connection: pass frames to the lifecycle, poll, probe, and emit the resulting events."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from sources.activemq import poll, probe
from sources.activemq.advisory import CONNECTION_TOPIC, QUEUE_TOPICS, MessageAdvisory, parse
from sources.activemq.config import ActiveMQCollectorConfig, matches
from sources.activemq.connection import Session
from sources.activemq.discarded import DiscardWatch
from sources.activemq.errors import BrokerUnavailable
from sources.activemq.event_builder import SYSTEM
from sources.activemq.findings import PERMISSIONS_XML, Finding, Observed, diagnose
from sources.activemq.inbox import Incoming
from sources.activemq.lifecycle import Lifecycle
from sources.activemq.reconcile import Reconciler
from sources.activemq.statistics import QueueCounts
from sources.activemq.temporary import of_lasting_queues
from sources.activemq.unprepared import FlagWatch
from sources.events import Emit, Event, heartbeat

ADVISORIES = "advisories"
_REPLAY_S = 3.0
"""The broker repeats its consumers at once; later ones are new. The first reply of the statistics plugin, requested after the
subscription, shows earlier that the repetition is complete."""
_FLUSH_S = 0.2
_EMIT_AT_ONCE = 5_000
_EMIT_EVERY_S = 0.1
"""Each call of `emit` may be a round trip, so a busy broker's events are batched."""
_CONSUMERS_EVERY_S = 30.0
"""How often an unchanged consumer is reported again."""
_SILENT_S = 30.0
"""A broker that is silent for this long (three of its heartbeats) is not reported as watched."""
_MAX_NAMES = 100_000
_FORGOTTEN_AFTER_MS = 3_600_000
"""Without the broker's counts, a queue from which a wildcard took nothing for this long may be gone."""

log = logging.getLogger(__name__)


class Watch:
    """The state of one connection.

    `now_s` is any monotonic clock, `now_ms` is epoch milliseconds.
    """

    def __init__(self, config: ActiveMQCollectorConfig, session: Session, lifecycle: Lifecycle, emit: Emit) -> None:
        self._config = config
        self._session = session
        self._lifecycle = lifecycle
        self._emit = emit
        self._events: list[Event] = []
        self._poll = poll.StatisticsPoll(
            session, config.queues, config.statistics_interval_s, oldest_message=config.oldest_message
        )
        self._probe = None if config.probe_queue is None else probe.Probe(session, config.probe_queue)
        self._reconciler = Reconciler(lifecycle)
        self._flags = FlagWatch()
        self._discards = DiscardWatch(session.client_id)
        self._replay_ends_s: float | None = None
        self._next_flush_s = 0.0
        self._next_heartbeat_s = 0.0
        self._next_emit_s = 0.0
        self._reported: dict[tuple[str, str], tuple[object, float]] = {}
        self._observed_before: Observed | None = None
        self._bodiless_before = lifecycle.bodiless
        self._unreadable_before = Counter(lifecycle.unreadable)
        self._now_s = 0.0
        self._watched: dict[str, bool] = {}
        self._is_named = config.broker_name is not None
        """Whether it is known which broker this is: after a failover it may be another one."""

    def start(self, now_s: float, now_ms: int) -> None:
        """Subscribe, and start polling and probing. Raises `BrokerUnavailable`."""
        self._now_s = now_s
        self._lifecycle.begin_session()
        headers = {"transformation": "jms-advisory-json", "receipt": ADVISORIES}
        self._session.subscribe(advisory_topics(self._config), ADVISORIES, headers)
        self._replay_ends_s = now_s + _REPLAY_S
        self._poll.start()
        self._poll.tick(now_s, now_ms)
        if self._probe is not None:
            self._probe.start(now_s, now_ms)

    def take(self, incoming: Incoming) -> None:
        """Process one frame. Raises `BrokerUnavailable` when it reports the end of the connection."""
        if incoming.kind == "disconnected":
            why = incoming.body if isinstance(incoming.body, str) else ""
            raise BrokerUnavailable(str(self._session.address), why or "the broker closed the connection")
        if incoming.kind == "error":
            self._refused(incoming)
        elif incoming.subscription == ADVISORIES:
            self._advisory(incoming)
        elif incoming.subscription == poll.SUBSCRIPTION:
            self._statistics(incoming)
        elif incoming.subscription == probe.SUBSCRIPTION and self._probe is not None:
            self._probe.message(incoming.headers)

    def tick(self, now_s: float, now_ms: int) -> None:
        """Do what is due, and emit pending events. Raises `BrokerUnavailable`."""
        self._now_s = now_s
        if self._replay_ends_s is not None and now_s >= self._replay_ends_s:
            self._end_replay(now_ms)
        if now_s >= self._next_flush_s:
            self._next_flush_s = now_s + _FLUSH_S
            self._add(self._lifecycle.flush(now_ms))
        self._poll.tick(now_s, now_ms)
        if self._probe is not None:
            self._probe.tick(now_s)
        is_heard = self._is_named and self._session.silent_s() < _SILENT_S
        if now_s >= self._next_heartbeat_s and is_heard:
            self._next_heartbeat_s = now_s + self._config.heartbeat_interval_s
            self._add([self._heartbeat(now_ms)])
            if self._poll.plugin == "missing":
                self._lifecycle.forget_queues(now_ms - _FORGOTTEN_AFTER_MS)
        if now_s >= self._next_emit_s:
            self._next_emit_s = now_s + _EMIT_EVERY_S
            self._send()

    def stop(self, unread: Iterable[Incoming]) -> None:
        """Process the advisories that were read before the connection ended, which do not come again, and emit pending events."""
        for incoming in unread:
            if incoming.kind == "message" and incoming.subscription == ADVISORIES:
                self._advisory(incoming)
        self._send()

    def findings(self) -> list[Finding] | None:
        """Return the findings on the broker's configuration if they have changed since the last call; else None."""
        probed = self._probe if self._probe is not None and self._probe.done else None
        observed = Observed(
            server=self._session.server,
            version=self._session.version,
            plugin=_known(self._poll.plugin),
            subscriptions=_known(self._poll.subscriptions),
            probed=frozenset(probed.seen) if probed is not None and probed.refused is None else None,
            probe_queue=self._config.probe_queue,
            probe_refused=None if probed is None else probed.refused,
            bodiless=self._lifecycle.bodiless - self._bodiless_before,
            unreadable=dict(Counter(self._lifecycle.unreadable) - self._unreadable_before),
            silent_flags=self._flags.missing(),
            discarded=self._discards.discarded,
        )
        if observed == self._observed_before:
            return None
        self._observed_before = observed
        return diagnose(observed)

    @property
    def probing(self) -> bool:
        """Whether the probe of what the broker reports is still running."""
        return (
            self._poll.plugin == "unknown"
            or (self._poll.plugin == "present" and self._poll.subscriptions == "unknown")
            or (self._probe is not None and not self._probe.done)
        )

    # -- frames ---------------------------------------------------------------------------------------------

    def _advisory(self, incoming: Incoming) -> None:
        lifecycle = self._lifecycle
        self._name(incoming.headers.get("originBrokerName"), incoming.at_ms)
        advisory = parse(incoming.headers, incoming.body)
        if self._probe is not None and not self._probe.done:
            self._probe.advisory(advisory)
        if isinstance(advisory, MessageAdvisory):
            if not self._is_watched(advisory.queue):
                return
            if self._poll.plugin != "missing":  # else nothing compares them with the broker's counts
                self._flags.read(advisory.kind, advisory.queue)
            self._add(lifecycle.apply(advisory, incoming.at_ms))
            return
        events = lifecycle.apply(advisory, incoming.at_ms)
        self._add([event for event in events if self._is_watched(event["queue"])])

    def _statistics(self, incoming: Incoming) -> None:
        done = self._poll.reply(incoming.headers, incoming.body)
        self._name(self._poll.broker_name, incoming.at_ms)
        if self._replay_ends_s is not None and self._poll.plugin == "present":
            self._end_replay(incoming.at_ms)
        if done is None:
            return
        at_ms = self._lifecycle.clock.at(incoming.at_ms)
        watched = {counts.queue: counts for counts in done.queues if self._config.is_watched(counts.queue)}.values()
        for counts in watched:
            self._add([self._queue_state(counts, self._flags.observe(counts), at_ms)])
        self._flags.keep_only({counts.queue for counts in watched})
        self._lifecycle.forget_queues(done.asked_ms, {counts.queue for counts in done.queues})
        self._discards.observe(done.subscriptions)
        self._add(self._reconciler.observe(done.subscriptions, done.asked_ms, incoming.at_ms, done.queues))
        self._add(self._changed_consumers(incoming.at_ms))

    def _name(self, name: str | None, now_ms: int) -> None:
        """Take the name of the broker from the first frame of this connection that has it."""
        if self._is_named or not name:
            return
        self._is_named = True
        before = self._lifecycle.builder.scope
        if before is not None and name != before:
            log.warning(
                "ActiveMQ: %s is the broker %r, and the one before was %r: its queues are reported as those of another broker. "
                "If both have the same store, set collect.activemq.broker_name",
                self._session.address,
                name,
                before,
            )
            self._add(self._lifecycle.change_broker(name, now_ms))
        self._lifecycle.builder.scope = name

    def _end_replay(self, now_ms: int) -> None:
        self._replay_ends_s = None
        self._add(self._lifecycle.end_replay(now_ms))

    def _queue_state(self, counts: QueueCounts, missing: frozenset[str], at_ms: int) -> Event:
        traits = self._lifecycle.traits
        attributes = counts.attributes()
        attributes["kind"] = "grouped" if traits.is_ordered(counts.queue) else "standard"
        if traits.is_dead_letter_queue(counts.queue):
            # Messages may have been in it before anything was seen to move there.
            attributes["is_dead_letter_queue"] = True
        if (dead_letter_queue := traits.dead_letter_queue_of(counts.queue)) is not None:
            attributes["dead_letter_queue"] = dead_letter_queue
        if missing:
            attributes["missing_advisories"] = sorted(missing)
        return self._lifecycle.builder.about_queue(counts.queue, "queue_state", at_ms, attributes)

    def _changed_consumers(self, now_ms: int) -> list[Event]:
        """Return the consumer states that changed, and at intervals the others."""
        events = []
        current = {}
        for event in self._lifecycle.consumer_states(now_ms):
            key = (event["queue"], event["consumer"])
            if not self._is_watched(event["queue"]):
                continue
            attributes, reported_s = self._reported.get(key, (None, 0.0))
            if event["attributes"] != attributes or self._now_s - reported_s >= _CONSUMERS_EVERY_S:
                events.append(event)
                attributes, reported_s = event["attributes"], self._now_s
            current[key] = (attributes, reported_s)
        self._reported = current
        return events

    def _is_watched(self, queue: str) -> bool:
        known = self._watched.get(queue)
        if known is None:
            if len(self._watched) >= _MAX_NAMES:
                self._watched.clear()
            known = self._watched[queue] = self._config.is_watched(queue)
        return known

    def _refused(self, incoming: Incoming) -> None:
        said = str(incoming.body)
        if self._probe is not None:
            self._probe.error(incoming.headers, said)
        if incoming.headers.get("receipt-id") == ADVISORIES:
            remedy = f"let the collector's user read the advisories:\n{PERMISSIONS_XML}"
            raise BrokerUnavailable(str(self._session.address), said, remedy)
        log.warning("ActiveMQ: %s: %s", self._session.address, said)

    # -- events ---------------------------------------------------------------------------------------------

    def _heartbeat(self, now_ms: int) -> Event:
        scope = self._lifecycle.builder.scope
        event = heartbeat(SYSTEM, self._config.name or f"activemq:{scope}", now_ms)
        if scope:
            event["scope"] = scope
        return event

    def _add(self, events: list[Event]) -> None:
        self._events += of_lasting_queues(events)
        if len(self._events) >= _EMIT_AT_ONCE:
            self._send()

    def _send(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._emit(events)


def advisory_topics(config: ActiveMQCollectorConfig) -> str:
    """Return the composite destination of all wanted advisories."""
    patterns = list(config.queues)
    if config.probe_queue is not None and not any(matches(p, config.probe_queue) for p in patterns):
        patterns.append(config.probe_queue)
    kinds = [kind for kind in QUEUE_TOPICS if kind != "SlowConsumer" or config.slow_consumer_advisories]
    topics = [f"ActiveMQ.Advisory.{kind}.Queue.{pattern}" for kind in kinds for pattern in patterns]
    topics.append(f"ActiveMQ.Advisory.{CONNECTION_TOPIC}")
    return ",".join(f"/topic/{topic}" for topic in topics)


def _known(state: str) -> bool | None:
    return {"present": True, "missing": False}.get(state)
