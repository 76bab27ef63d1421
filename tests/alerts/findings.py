"""Findings of every signal, produced by the judge from telemetry; the texts in the catalogue are checked against them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

from streaming.core.clock import Clock, tick
from streaming.core.reporting.merge import Merged, MergedQueues
from streaming.core.settings import QueueRule, Settings
from streaming.judge.findings.signals import Finding
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import SETTINGS, in_steps, judged
from tests.judge.rules.test_attempts import THIRD_S, tried_again
from tests.judge.rules.test_groups_behind_full_windows import one_at_a_time
from tests.judge.rules.test_noisy_groups import crowd
from tests.judge.rules.test_passed_over import unmatched
from tests.judge.rules.test_refused_deletions import heads

Events = list[dict[str, Any]]
DAY_S = 86_400


@cache
def every_finding() -> tuple[Finding, ...]:
    """Return all findings that the judge produces in the incidents below."""
    runs = (
        (messages(), 10, 1_000),
        (ordered(), 10, 420),
        (flow(), 10, 1_900),
        (_silent(), 60, 4_800),
        (_telemetry(), 10, 1_000),
        (one_at_a_time(hangs=True), 30, 600),
        (unmatched(), 30, 600),
        (unmatched(one_per_s=0.5), 60, 1_500),
        (tried_again(), 10, THIRD_S),
        (crowd(), 10, 150),
        (heads(), 10, 120),
    )
    return (*(finding for run in runs for finding in _found(*run)), *_found(_expiring(), 3_600, 4 * DAY_S), *_clock())


def _found(events: Events, every_s: int, until_s: int) -> Iterator[Finding]:
    settings = Settings(now_is_event_time=True, rules=(QueueRule("ahead.fifo", {"look_ahead": 5}),))
    for snapshot in judged(in_steps(sorted(events, key=lambda e: e["at"]), every_s, until_s), settings).snapshots:
        yield from snapshot.firing


def _work(queue: str, at_s: float, message_id: str, hold_s: float = 1.0) -> Events:
    """One message is sent, received and deleted."""
    about = {"message_id": message_id}
    received = ev("received", at_s + 0.1, queue, receive_count=1, consumer="w", **about)
    return [ev("sent", at_s, queue, **about), received, ev("deleted", at_s + 0.1 + hold_s, queue, **about)]


def messages() -> Events:
    """Poison, held, lost, purged and dead-lettered messages; a noisy group, failing batches, redrives, maxReceiveCount 1."""
    state = {"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 4, "dead_letter_queue": "q-dlq"}
    events = [ev("queue_state", 0, attributes=state), ev("sent", 0, message_id="bad"), ev("sent", 0, message_id="held")]
    events += [ev("received", 10 + 40 * n, message_id="bad", receive_count=n + 1, consumer="w") for n in range(4)]
    events += [ev("dead_lettered", 200, message_id="bad", to_queue="q-dlq")]
    events += [ev("queue_state", 0, "alone", attributes={"kind": "standard", "dead_letter_queue": ""})]
    events += [ev("received", 10 + 40 * n, "alone", message_id="bad", receive_count=n + 1, consumer="w") for n in range(4)]
    events += [ev("received", 1, message_id="held", receive_count=1, consumer="w")]
    events += [ev("extended", at, message_id="held", invisible_until=T0 + (at + 30) * 1000) for at in range(25, 1_000, 25)]
    events += [ev("sent", 0, message_id="lost"), ev("received", 5, message_id="lost", receive_count=3)]
    events += [ev("dropped", 10, message_id="lost", reason="retries"), ev("dropped", 10, message_id="unsent", reason="retries")]
    events += [ev("sent", 20, "purged", message_id=f"p{n}") for n in range(3)] + [ev("purged", 30, "purged")]
    events += [ev("queue_state", 0, "loud", attributes={"visibility_timeout_s": 900})]
    for n in range(40):
        events.append(ev("sent", n / 100, "loud", message_id=f"n{n}", group="big"))
        events += [ev("received", 1 + n / 100, "loud", message_id=f"n{n}", group="big", receive_count=1)] * (n < 32)
    events.append(ev("sent", 2, "loud", message_id="x", group="calm"))
    for n in range(6):
        events += [
            ev("received", 20 * n, "batches", message_id=f"m{m}", receive_count=n + 1, batch_id=f"b{n}") for m in range(10)
        ]
        counts = {"size": 10, "failed": 1, "acked": 0, "retried": 10}
        events.append(ev("batch", 20 * n + 1, "batches", batch_id=f"b{n}", attributes=counts))
    task = {"status": "RUNNING", "started_at": T0, "moved": 5, "to_move": 50, "to_queue": "q", "progressed_at": T0 + 10_000}
    events += [ev("queue_state", at, "moving", attributes={"redrive_task": task}) for at in (10, 300, 700)]
    failed = task | {"status": "FAILED", "failure_reason": "AccessDenied"}
    events += [ev("queue_state", 0, "once", attributes={"max_receive_count": 1, "dead_letter_queue": "q-dlq"})]
    return [*events, ev("queue_state", 900, "moving", attributes={"redrive_task": failed})]


def ordered() -> Events:
    """A stuck group, one whose head is long work, hidden groups, a single group in flight, and a queue without receives."""
    fifo = {"kind": "fifo", "visibility_timeout_s": 30}
    events = [ev("queue_state", 0, queue, attributes=fifo) for queue in ("f.fifo", "ahead.fifo", "one.fifo")]
    head = {"message_id": "l0", "group": "L", "consumer": "w"}
    events += [ev("sent", n, "f.fifo", message_id=f"l{n}", group="L", sequence=str(n)) for n in range(2)]
    events += [ev("received", 2, "f.fifo", receive_count=1, **head)]
    events += [ev("extended", at, "f.fifo", invisible_until=T0 + (at + 30) * 1000, **head) for at in range(22, 420, 20)]
    for queue, groups, each in (("f.fifo", "A", 5), ("ahead.fifo", "A", 6), ("ahead.fifo", "BC", 1), ("one.fifo", "ABCDEF", 3)):
        first = 10**19 if groups.startswith("A") else 2 * 10**19
        for i in range(each):
            events += [ev("sent", i / 10, queue, message_id=f"{g}{i}", group=g, sequence=str(first + i)) for g in groups]
    for queue in ("f.fifo", "ahead.fifo", "one.fifo"):
        head = {"message_id": "A0", "group": "A", "consumer": "w"}
        events += [ev("received", 2 + 31 * n, queue, receive_count=n + 1, **head) for n in range(13)]
    events += [ev("outlived", 32.5 + 31 * n, "f.fifo", message_id="A0", group="A", consumer="w") for n in range(2)]
    events += [ev("queue_state", 0, "idle", attributes={"visibility_timeout_s": 30})]
    for n in range(10):
        events.append(ev("sent", 10 + n, "idle", message_id=f"i{n}"))
    return [*events, *_work("idle", 1, "first")]


def flow() -> Events:
    """A failing consumer, hanging ones, a removed one, windows that are too short, and a deployment that slows work down."""
    state = {"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 3, "dead_letter_queue": "d"}
    events = [ev("queue_state", 0, queue, attributes=state) for queue in ("failing", "short", "lagging", "hung")]
    for i in range(100):
        events += _work("failing", 2 * i, f"g{i}")
    for i in range(160):
        events += [ev("sent", 20 + i, "failing", message_id=f"b{i}")]
        for n in range(3):
            received_at = 21 + i + 5 * n
            events += [ev("received", received_at, "failing", message_id=f"b{i}", receive_count=n + 1, consumer="bad")]
            events += [ev("released", received_at + 1, "failing", message_id=f"b{i}")]
        events += [ev("dead_lettered", 40 + i, "failing", message_id=f"b{i}", to_queue="d")]
    events += [ev("outlived", 50 + i, "failing", message_id=f"b{i}", consumer="bad") for i in range(3)]
    for i in range(60):
        events += _work("short", 10 * i, f"s{i}", hold_s=2)
    for i in range(6):
        events += _work("short", 50 + 90 * i, f"long{i}", hold_s=45)
    for i in range(20):
        events += _work("hung", 10 * i, f"h{i}", hold_s=2)
    events += [ev("sent", 200, "hung", message_id="stuck")]
    events += [ev("consumer_state", 200, "hung", consumer="hung", attributes={"client_id": "billing"})]
    events += [ev("received", 201, "hung", message_id="stuck", receive_count=1, consumer="hung", invisible_until=T0 + 9_000_000)]
    for i in range(20):
        events += _work("prefetched", 10 * i, f"h{i}", hold_s=2)
    events += [ev("consumer_state", 0, "prefetched", consumer="hung", attributes={"prefetch": 1_000})]
    for i in range(3):
        taken = {"receive_count": 1, "consumer": "hung", "invisible_until": T0 + 9_000_000}
        events += [ev("sent", 200 + i, "prefetched", message_id=f"n{i}")]
        events += [ev("received", 201 + i, "prefetched", message_id=f"n{i}", **taken)]
    removed = {"connected": False, "removed_at": T0 + 300_000, "connection_open": True, "returned": 5, "returned_since": T0}
    events += [ev("consumer_state", 300, "prefetched", consumer="removed", attributes=removed)]
    for i in range(36):
        events += [{**e, "group": f"t{i}"} for e in _work("crowded", 2 * i, f"c{i}")]
    for i in range(40):
        about = {"message_id": f"big{i}", "group": "big"}
        taken = {"receive_count": 1, "consumer": f"w{i % 2}", "invisible_until": T0 + 9_000_000}
        events += [ev("sent", 100 + i / 10, "crowded", **about), ev("received", 101 + i / 10, "crowded", **about, **taken)]
    events.append(ev("sent", 102, "crowded", message_id="calm", group="calm"))
    for i in range(1_800):
        takes = 1 if i < 900 else 8
        free = i + 0.1 if i < 900 else 900 + (i - 900) * 2
        events.append(ev("sent", i, "lagging", message_id=f"l{i}"))
        if free < 1_800:
            until = T0 + round((free + 600) * 1000)
            events.append(
                ev("received", free, "lagging", message_id=f"l{i}", receive_count=1, consumer="w", invisible_until=until)
            )
            events.append(ev("deleted", free + takes, "lagging", message_id=f"l{i}"))
    return [*events, *_two_bad_hosts(), *_one_of_two_gone()]


def _two_bad_hosts() -> Events:
    """Two consumers that fail everything, beside one that finishes everything."""
    events = [ev("queue_state", 0, "hosts", attributes={"kind": "standard", "visibility_timeout_s": 30})]
    for i in range(200):
        events += _work("hosts", i, f"good{i}")
        named = {"message_id": f"bad{i}", "consumer": f"bad-{i % 2}"}
        events += [ev("sent", i, "hosts", message_id=f"bad{i}"), ev("received", i + 1, "hosts", receive_count=1, **named)]
        events += [ev("released", i + 2, "hosts", **named)]
    return events


def _one_of_two_gone() -> Events:
    """One of two consumers stops at minute ten; the other handles half of the messages."""
    events = [ev("queue_state", 0, "halved", attributes={"kind": "standard", "visibility_timeout_s": 30})]
    for i in range(1_800):
        events.append(ev("sent", i, "halved", message_id=f"x{i}"))
        consumer, at_s = ("ab"[i % 2], i + 0.1) if i < 600 else ("a", 600 + 2 * (i - 600))
        if at_s < 1_800:
            events.append(ev("received", at_s, "halved", message_id=f"x{i}", receive_count=1, consumer=consumer))
            events.append(ev("deleted", at_s + 1, "halved", message_id=f"x{i}"))
    return events


def _silent() -> Events:
    """A queue with regular traffic no longer has any."""
    return [event for i in range(125) for event in _work("silent", 30 * i, f"t{i}")]


def _telemetry() -> Events:
    """A collector falls silent, and a broker counts more messages than are tracked."""
    events = [ev("heartbeat", 30 * n, consumer="sqs-1", queue="") for n in range(5)]
    events += [ev("sent", n / 100, message_id=f"m{n}") for n in range(50)]
    counts = {"visible": 100, "in_flight": 0, "delayed": 0}
    return [*events, *(ev("queue_state", 5 + 60 * n, attributes=counts) for n in range(16))]


def _expiring() -> Events:
    """Two dead letters stay until their retention ends; after half of the last day the broker counts one.

    Of another dead-letter queue the retention is not reported, and of a third one the send time of its message.
    """
    events = [ev("queue_state", 0, attributes={"kind": "standard", "dead_letter_queue": "q-dlq", "max_receive_count": 4})]
    events += [ev("queue_state", 0, "q-dlq", attributes={"kind": "standard", "retention_s": 4 * DAY_S})]
    for name in ("m", "n"):
        events += [ev("sent", 0, message_id=name), ev("dead_lettered", 600, message_id=name, to_queue="q-dlq")]
    events.append(ev("queue_state", 3.5 * DAY_S, "q-dlq", attributes={"visible": 1, "in_flight": 0, "delayed": 0}))
    seen = {"message_id": "o", "receive_count": 4, "from_queue": "other", "sent_at": ev("sent", -3 * DAY_S - 60)["at"]}
    events.append(ev("received", 0, "other-dlq", **seen))
    events.append(ev("queue_state", 0, "third-dlq", attributes={"kind": "standard", "retention_s": 4 * DAY_S}))
    events.append(ev("dead_lettered", 600, "third", message_id="p", to_queue="third-dlq"))
    return [*events, *(ev("heartbeat", 3_600 * n, consumer="sqs-1", queue="") for n in range(96))]


def _clock() -> Iterator[Finding]:
    """The service's clock jumps by a month, and senders' clocks are ahead."""
    memory = JudgeMemory(clock=tick(tick(Clock(), T0), T0 + 30 * DAY_S * 1000))
    nothing = Merged(T0, 0, MergedQueues([], SETTINGS), [], 100, Counter(ahead=2), Counter(), {}, [], T0)
    yield from judge(memory, nothing, T0, SETTINGS)[1].firing
