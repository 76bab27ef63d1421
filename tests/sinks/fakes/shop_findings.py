"""What queuewatch finds on the shop's bad afternoon: the judge's own findings about telemetry of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from streaming.judge.findings.signals import Finding, SignalName
from tests.contract.replaying import ev, ms
from tests.judge.driving import Step, in_steps, judged
from tests.sinks.fakes.shop_messages import ShopMessages
from tests.sinks.fakes.views import SCOPE

Events = list[dict[str, Any]]

_NOW_S = 2_400
"""When the afternoon is looked at, in seconds after its telemetry begins."""
_RETENTION_S = 4 * 86_400
_DEAD_NOW_S = _RETENTION_S - 9_000
"""The same moment in the telemetry of the oldest dead letter, which is four days long."""

_SHOWN: tuple[tuple[SignalName, str], ...] = (
    ("PoisonMessage", "orders"),
    ("GroupStuck", "payments.fifo"),
    ("QueueStalled", "invoice-mail"),
    ("DeadLetterExpiring", "orders-dlq"),
    ("DeadLetterArrived", "orders-dlq"),
    ("MessageHeldTooLong", "video-transcode"),
    ("SlowConsumer", "ORDERS.EU"),
    ("TelemetryStale", ""),
)
"""In this order. What else the judge finds in a queue follows from these faults, and the fake stays small without it."""


def shop_findings(now_ms: int, m: ShopMessages) -> tuple[Finding, ...]:
    """A poison order, a stuck group, a stalled queue, expiring dead letters, and a silent collector."""
    ids = m.poison.message_id, m.second.message_id, m.head.message_id, m.held.message_id
    return tuple(_moved(finding, now_ms - at_ms) for finding, at_ms in _judged(*ids, tuple(dead.message_id for dead in m.dead)))


@cache
def _judged(poison: str, second: str, head: str, held: str, dead: tuple[str, ...]) -> tuple[tuple[Finding, int], ...]:
    """Return the findings that are shown, each with the time at which it was judged."""
    queues = (_orders(poison, second, dead), _payments(head), _invoices(), _video(held), _orders_eu(), _warehouse())
    afternoon = sorted((event for events in queues for event in events), key=lambda e: e["at"])
    found = []
    for steps in (in_steps(afternoon, 30, _NOW_S), _old_dead_letter(dead[0])):
        last = judged(steps).snapshots[-1]
        found += [(finding, last.at_ms) for finding in last.firing]
    chosen = [pair for shown in _SHOWN for pair in found if (pair[0].key.signal, pair[0].key.queue) == shown]
    assert {(finding.key.signal, finding.key.queue) for finding, _ in chosen} == set(_SHOWN)
    return tuple(chosen)


def _moved(finding: Finding, by_ms: int) -> Finding:
    """Move a finding, and the times in its evidence, to another day."""
    is_time = {name: name.endswith("_at") or name == "invisible_until" for name in finding.evidence}
    evidence = {name: value + by_ms if is_time[name] else value for name, value in finding.evidence.items()}
    return replace(finding, since_ms=finding.since_ms + by_ms, evidence=evidence)


class _Queue:
    """Builds the events of one queue; times are seconds before the look."""

    def __init__(self, queue: str, attributes: dict[str, Any], scope: str = SCOPE, system: str = "aws_sqs") -> None:
        self._about = {"queue": queue, "scope": scope, "system": system}
        self.events = [self._ev("queue_state", _NOW_S, attributes=attributes)]

    def _ev(self, type_: str, ago_s: float, **fields: Any) -> dict[str, Any]:
        return {**ev(type_, _NOW_S - ago_s, **fields), **self._about}

    def add(self, type_: str, ago_s: float, **fields: Any) -> None:
        """Add an event."""
        self.events.append(self._ev(type_, ago_s, **fields))

    def receives(self, message_id: str, ago_s: float, every_s: float, count: int, consumer: str, **about: Any) -> None:
        """A message is sent, and received again whenever its window has run out."""
        self.add("sent", ago_s + 10, message_id=message_id, **about)
        for n in range(count):
            self.add("received", ago_s - n * every_s, message_id=message_id, receive_count=n + 1, consumer=consumer, **about)

    def works(self, from_s: float, to_s: float, every_s: float, hold_s: float, consumer: str, **about: Any) -> None:
        """Messages are sent, received and deleted."""
        for n in range(int((from_s - to_s) / every_s)):
            ago_s, message_id = from_s - n * every_s, f"{consumer}-{from_s}-{n}"
            self.add("sent", ago_s, message_id=message_id, **about)
            self.add("received", ago_s - 0.2, message_id=message_id, receive_count=1, consumer=consumer, **about)
            self.add("deleted", ago_s - 0.2 - hold_s, message_id=message_id, **about)


def _orders(poison: str, second: str, dead: tuple[str, ...]) -> Events:
    """Two poison orders; ten others have gone to the dead-letter queue, the last of them two minutes ago."""
    state = {"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 6, "dead_letter_queue": "orders-dlq"}
    orders = _Queue("orders", state)
    orders.works(600, 2, 10, 1.0, "orders-worker-1")
    orders.receives(poison, 149, 35, 5, "orders-worker-2")
    orders.receives(second, 95, 32, 3, "orders-worker-1")
    for n, message_id in enumerate(reversed(dead)):
        ago_s = 700 + 100 * n if n else 120
        orders.receives(message_id, ago_s + 190, 31, 6, "orders-worker-2")
        orders.add("dead_lettered", ago_s, message_id=message_id, to_queue="orders-dlq")
    return orders.events


def _payments(head: str) -> Events:
    """A group's head fails again and again, and 247 messages wait behind it; other groups go on."""
    payments = _Queue("payments.fifo", {"kind": "fifo", "visibility_timeout_s": 30})
    for n in range(10):
        payments.works(600 - n, 2, 30, 1.0, "payments-worker-2", group=f"customer-{1000 + 37 * n}")
    group = {"group": "customer-4711"}
    payments.receives(head, 402, 39, 11, "payments-worker-1", sequence=head, **group)
    for n in range(247):
        payments.add("sent", 400 - n, message_id=f"4711-{n}", sequence=str(int(head) + 1 + n), **group)
    return payments.events


def _invoices() -> Events:
    """The consumers stop, and nobody receives the 927 messages that are sent afterwards."""
    invoices = _Queue("invoice-mail", {"kind": "standard", "visibility_timeout_s": 30})
    invoices.works(1_258, 758, 10, 1.0, "mailer-1")
    for n in range(927):
        invoices.add("sent", 757 - n * 0.8, message_id=f"invoice-{n}")
    return invoices.events


def _video(held: str) -> Events:
    """A consumer extends the window of one message six times."""
    video = _Queue("video-transcode", {"kind": "standard", "visibility_timeout_s": 300})
    video.receives(held, 1_930, 0, 1, "video-encoder-7")
    for n in range(1, 7):
        ago_s = 1_930 - 280 * n
        video.add("extended", ago_s, message_id=held, consumer="video-encoder-7", invisible_until=ms(_NOW_S - ago_s + 300))
    return video.events


def _orders_eu() -> Events:
    """One of two consumers of an ActiveMQ queue has stopped acknowledging."""
    eu = _Queue("ORDERS.EU", {"kind": "queue"}, "amq-prod-1", "activemq")
    eu.works(600, 48, 10, 1.1, "ID:app-3-4711:1:1")
    eu.works(600, 2, 10, 1.1, "ID:app-2-4710:1:1")
    for n in range(230):
        eu.add("sent", 48, message_id=f"ID:app-1-1:1:1:{n}")
        eu.add("received", 47, message_id=f"ID:app-1-1:1:1:{n}", receive_count=1, consumer="ID:app-3-4711:1:1")
    return eu.events


def _warehouse() -> Events:
    """The only collector of a region falls silent."""
    warehouse = _Queue("warehouse-sync", {"kind": "standard"}, "123456789012/us-east-1")
    for ago_s in range(2_380, 189, -30):
        warehouse.add("queue_state", ago_s, consumer="sqs-us", attributes={"visible": 0, "in_flight": 0})
        warehouse.events.append(ev("heartbeat", _NOW_S - ago_s, consumer="sqs-us", queue=""))
    return warehouse.events


def _old_dead_letter(message_id: str) -> list[Step]:
    """A dead letter has stayed for nearly four days, as long as its queue keeps messages from their original send."""
    orders = {"kind": "standard", "dead_letter_queue": "orders-dlq", "max_receive_count": 6}
    dead = {"kind": "standard", "retention_s": _RETENTION_S}
    about = {"scope": SCOPE, "message_id": message_id}
    began = [
        ev("queue_state", 0, "orders", scope=SCOPE, attributes=orders),
        ev("queue_state", 0, "orders-dlq", scope=SCOPE, attributes=dead),
        ev("sent", 0, "orders", **about),
    ]
    steps: list[Step] = [(0, began), (600_000, [ev("dead_lettered", 600, "orders", to_queue="orders-dlq", **about)])]
    for at_s in (*range(43_200, _DEAD_NOW_S, 43_200), _DEAD_NOW_S):
        steps.append((at_s * 1000, [ev("heartbeat", at_s, "", consumer="sqs-eu")]))
    return steps
