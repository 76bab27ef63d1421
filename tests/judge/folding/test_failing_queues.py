"""One incident, one page: stuck groups of an ordered queue that fails as a whole are folded into QueueFailing."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge.findings.signals import SignalChange
from tests.contract.replaying import ev, ms
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
GROUPS = 40
BROKEN_S, MENDED_S, END_S = 120, 240, 620
STATE = ev("queue_state", 0, "q.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 30})


def fifo(type_: str, at_s: float, message: str, group: int, **fields: Any) -> dict[str, Any]:
    """An event of a message of a group."""
    return ev(type_, at_s, "q.fifo", message_id=f"{message}{group}", group=f"g{group}", **fields)


def healthy(from_s: int, until_s: int, groups: int = GROUPS) -> Events:
    """One message per second, from one group after the other, each finished at once."""
    out: Events = []
    for at in range(from_s, until_s):
        name, group = f"m{at}-", at % groups
        got = fifo("received", at + 0.2, name, group, receive_count=1, consumer="w")
        out += [fifo("sent", at, name, group), got, fifo("deleted", at + 0.7, name, group)]
    return out


def stuck(group: int, until_s: int, from_s: int = BROKEN_S) -> Events:
    """A head that comes back every 31 s from its first delivery on, with one message behind it."""
    out = [fifo("sent", from_s, "head", group), fifo("sent", from_s + 0.5, "next", group)]
    first = from_s + 1 + group / 4
    for n in range(int((until_s - first) / 31) + 1):
        out.append(fifo("received", first + 31 * n, "head", group, receive_count=n + 1, consumer="w"))
    return out


def reported(events: Events, until_s: int = END_S) -> Judged:
    """Judge every five seconds."""
    return judged(in_steps(sorted([STATE, *events], key=lambda e: e["at"]), 5, until_s))


def stuck_groups(found: Judged, *, folded: bool) -> list[SignalChange]:
    """Return the GroupStuck that began to fire, folded or not."""
    changes = [c for c in found.changes if c.status == "firing" and c.finding.key.signal == "GroupStuck"]
    return [c for c in changes if (c.finding.folded == "QueueFailing") is folded]


def broken_deploy() -> Events:
    """All groups' heads fail until the deploy is rolled back; those of groups 0 and 1 fail for ever."""
    events = healthy(0, BROKEN_S)
    for group in range(GROUPS):
        events += stuck(group, END_S if group < 2 else MENDED_S)
    for group in range(2, GROUPS):
        at = MENDED_S + 35 + group / 4
        for n, message in enumerate(("head", "next")):
            got = fifo("received", at + n, message, group, receive_count=9 if not n else 1, consumer="w")
            events += [got, fifo("deleted", at + n + 0.5, message, group)]
    later = [e for e in healthy(MENDED_S + 60, END_S) if e["group"] not in ("g0", "g1")]
    return events + later


def test_stuck_heads_of_a_failing_queue_are_one_page() -> None:
    """Forty groups are stuck for one reason; those still stuck after the failure are announced individually."""
    found = reported(broken_deploy())
    failing = [(c.at_ms, c.status) for c in found.changes if c.finding.key.signal == "QueueFailing"]
    assert [status for _, status in failing] == ["firing", "resolved"]
    folded, single = stuck_groups(found, folded=True), stuck_groups(found, folded=False)
    assert len({c.finding.key.group for c in folded}) > 30
    assert {c.finding.key.group for c in single} == {"g0", "g1"}
    assert min(c.at_ms for c in single) > failing[1][0]


def test_a_queue_that_fails_for_long_is_one_page() -> None:
    """Nothing is settled for five minutes because every delivery fails: the stall is not a second incident."""
    until = 460
    found = reported(healthy(0, BROKEN_S) + [e for group in range(GROUPS) for e in stuck(group, until)], until)
    critical = [c.finding for c in found.changes if c.status == "firing" and c.finding.severity == "critical"]
    assert {f.key.signal for f in critical if f.announced} == {"QueueFailing"}
    assert found.firing("QueueStalled")[0].folded == "QueueFailing"


def test_a_single_stuck_head_of_a_healthy_queue_is_as_loud_as_ever() -> None:
    """The other groups flow."""
    flowing = [e for e in healthy(0, 400) if e["group"] != "g0" or e["at"] < STATE["at"] + BROKEN_S * 1000]
    found = reported([*flowing, *stuck(0, 400)], 400)
    assert not stuck_groups(found, folded=True)
    assert [c.finding.key.group for c in stuck_groups(found, folded=False)] == ["g0"]


def test_one_group_whose_failures_make_the_queue_fail_is_named() -> None:
    """Consumers take ten messages of the stuck group at a time and fail them all: most deliveries of the queue are its own."""
    names = [f"head-{i}" for i in range(10)]
    events = [fifo("sent", BROKEN_S + i / 10, name, 0) for i, name in enumerate(names)]
    for n in range(int((400 - BROKEN_S) / 31)):
        at = BROKEN_S + 2 + 31 * n
        events += [fifo("received", at, name, 0, receive_count=n + 1, consumer="w") for name in names]
    events += [e for e in healthy(0, 400) if e["group"] in ("g1", "g2", "g3")]
    found = reported(events, 400)
    assert found.firing("QueueFailing")
    assert not stuck_groups(found, folded=True)
    assert [c.finding.key.group for c in stuck_groups(found, folded=False)] == ["g0"]


def test_a_head_that_hangs_is_announced_though_the_queue_fails() -> None:
    """A consumer that has had one message since before the deploy, and extends its window, is a separate fault."""
    until = MENDED_S
    hung = [fifo("sent", 100, "hung", 99), fifo("sent", 100.5, "behind", 99)]
    hung.append(fifo("received", 101, "hung", 99, receive_count=1, consumer="h", invisible_until=ev("x", until + 60)["at"]))
    events = healthy(0, BROKEN_S)
    for group in range(GROUPS):
        events += stuck(group, until)
    found = reported([*events, *hung], until)
    assert found.firing("QueueFailing")
    assert [c.finding.key.group for c in stuck_groups(found, folded=False)] == ["g99"]


SHARED = {"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 3, "dead_letter_queue": "dead"}


def dying(queue: str, from_s: int, until_s: int) -> Events:
    """A message per second: each is received three times, given back, and dead-lettered."""
    out: Events = []
    for at in range(from_s, until_s):
        about = {"queue": queue, "message_id": f"{queue}{at}"}
        out.append(ev("sent", at, **about))
        for n in range(3):
            got = ev("received", at + 0.1 + n, receive_count=n + 1, consumer=f"w-{queue}", **about)
            out += [got, ev("released", at + 0.2 + n, consumer=f"w-{queue}", **about)]
        out.append(ev("dead_lettered", at + 3.1, to_queue="dead", **about))
    return out


@pytest.mark.parametrize("reports_settings", [True, False], ids=["all settings are reported", "none are"])
def test_dead_letters_of_two_failing_queues_that_share_a_queue_are_folded(reports_settings: bool) -> None:
    """One library breaks both of their consumers: two pages. The dead letter of a third queue, which works, is announced."""
    states = [ev("queue_state", 0, queue, attributes=SHARED) for queue in ("a", "b", "c")] if reports_settings else []
    events = [*dying("a", 60, 360), *dying("b", 60, 360), *dying("c", 300, 301)]
    found = judged(in_steps(sorted([*states, *events], key=lambda e: e["at"]), 5, 360))
    assert {f.key.queue for f in found.firing("QueueFailing")} == {"a", "b"}
    began = max(c.at_ms for c in found.changes if c.finding.key.signal == "QueueFailing")
    arrived = [c for c in found.changes if c.status == "firing" and c.finding.key.signal == "DeadLetterArrived"]
    later = [c.finding for c in arrived if c.at_ms > began]
    assert {f.evidence["from_queue"] for f in later if f.folded} == {"a", "b"}
    assert {f.evidence["from_queue"] for f in later if f.announced} == {"c"}


def test_dead_letters_of_a_failure_are_not_announced_when_it_is_over() -> None:
    """They fire for five quiet minutes, longer than what is left of a failure is folded. One that comes later is announced."""
    state = ev("queue_state", 0, "a", attributes=SHARED)
    well = [
        ev(kind, at + n, "a", message_id=f"w{at}", **({"receive_count": 1, "consumer": "w-a"} if kind == "received" else {}))
        for at in (*(150 + i / 5 for i in range(750)), *range(300, 700))
        for n, kind in ((0, "sent"), (0.2, "received"), (0.4, "deleted"))
    ]
    events = [state, *dying("a", 60, 150), *well, *dying("a", 600, 601)]
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 5, 700))
    (ended,) = [c.at_ms for c in found.changes if c.finding.key.signal == "QueueFailing" and c.status == "resolved"]
    arrived = [c for c in found.changes if c.finding.key.signal == "DeadLetterArrived" and c.status == "firing"]
    assert [c.finding.key.message_id for c in arrived if c.at_ms > ended and c.finding.announced] == ["a600"]


@pytest.mark.parametrize("restart", [False, True], ids=["straight", "restarted between any two steps"])
def test_dead_letters_of_a_failure_stay_folded_while_later_ones_keep_them_firing(restart: bool) -> None:
    """Another one every few minutes: those of the failure go on firing, folded.

    Those after it are announced; the first of them, which may be left of it, two minutes after it ended.
    """
    state = ev("queue_state", 0, "a", attributes=SHARED)
    well = [
        ev(kind, at + n, "a", message_id=f"w{at}", **({"receive_count": 1, "consumer": "w-a"} if kind == "received" else {}))
        for at in range(150, 1000)
        for n, kind in ((0, "sent"), (0.2, "received"), (0.4, "deleted"))
    ]
    later = [e for at in (350, 450, 650, 850) for e in dying("a", at, at + 1)]
    found = judged(
        in_steps(sorted([state, *dying("a", 60, 150), *well, *later], key=lambda e: e["at"]), 20, 1000), restart=restart
    )
    (ended,) = [c.at_ms for c in found.changes if c.finding.key.signal == "QueueFailing" and c.status == "resolved"]
    assert ms(360) < ended < ms(440)
    arrived = [c for c in found.changes if c.finding.key.signal == "DeadLetterArrived" and c.status == "firing"]
    announced = {c.finding.key.message_id: c.at_ms for c in arrived if c.at_ms > ended and c.finding.announced}
    assert list(announced) == ["a450", "a650", "a850"]
    assert ms(490) < announced["a450"] <= ended + 120_000
    assert {f.key.message_id for f in found.firing("DeadLetterArrived") if f.folded} > {"a149", "a350"}


def test_poison_messages_that_make_a_queue_seem_to_fail_again_and_again_are_announced() -> None:
    """Six a minute fail three times within 12 s and are deleted; QueueFailing never fires. It is waited for once, five minutes.

    Those that end meanwhile are logged, not announced: they are over. Nothing is folded into a signal that does not fire.
    """
    state = ev("queue_state", 0, "p", attributes={"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 4})
    events = [state]
    for at in range(1200):
        about = {"queue": "p", "message_id": f"w{at}"}
        events += [ev("sent", at, **about), ev("received", at + 0.2, receive_count=1, consumer="w", **about)]
        events.append(ev("deleted", at + 0.4, **about))
    for at in range(60, 1140, 60):
        for n in range(6):
            about = {"queue": "p", "message_id": f"bad{at}-{n}"}
            events.append(ev("sent", at, **about))
            for receive in range(3):
                got = ev("received", at + 1 + 5 * receive + n / 10, receive_count=receive + 1, consumer="w", **about)
                events += [got, ev("released", at + 2 + 5 * receive + n / 10, consumer="w", **about)]
            events.append(ev("deleted", at + 17, **about))
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 5, 1200), restart=True)
    assert not [c for c in found.changes if c.finding.key.signal == "QueueFailing"]
    poison = [c for c in found.changes if c.finding.key.signal == "PoisonMessage"]
    begun = [c for c in poison if c.status == "firing"]
    ended = [c for c in poison if c.status == "resolved"]
    assert len({c.finding.key.message_id for c in begun}) == 18 * 6 == len(ended)
    early = {c.finding.key.message_id for c in begun} - {c.finding.key.message_id for c in begun if c.finding.announced}
    assert early
    assert all(c.finding.announced for c in begun if c.at_ms > ms(60 + 300 + 30))


def test_a_failing_queue_is_waited_for_although_a_poison_message_comes_back_all_the_time() -> None:
    """Its former failures, most of which are not kept, are not those of the broken deploy."""
    events, broken_s = [ev("queue_state", 0, "p", attributes={"kind": "standard", "visibility_timeout_s": 30})], 400
    for n in range(broken_s):
        about = {"queue": "p", "message_id": f"w{n}", "consumer": "w"}
        events += [ev("sent", n, queue="p", message_id=f"w{n}"), ev("received", n + 0.01, receive_count=1, **about)]
        events.append(ev("deleted", n + 0.1, **about))
    for n in range(broken_s // 2 + 60):
        about = {"queue": "p", "message_id": "fast", "consumer": "w"}
        events += [ev("received", 1 + 2 * n, receive_count=n + 1, **about), ev("released", 1.05 + 2 * n, **about)]
    for n in range(broken_s, broken_s + 60):
        about = {"queue": "p", "message_id": f"b{n}", "consumer": "w"}
        events.append(ev("sent", n, queue="p", message_id=f"b{n}"))
        for k in range((broken_s + 110 - n) // 5):
            at = n + 0.01 + 5 * k
            events += [ev("received", at, receive_count=k + 1, **about), ev("released", at + 0.05, **about)]
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 5, broken_s + 110))
    begun = [c.finding for c in found.changes if c.at_ms >= ms(broken_s) and c.status == "firing"]
    assert {f.folded for f in begun if f.key.signal == "PoisonMessage"} == {"QueueFailing"}
    assert "QueueFailing" in {f.key.signal for f in begun}


def test_a_poison_message_that_comes_back_every_second_holds_back_no_other() -> None:
    """Most of its deliveries are not kept; they are still those of one message, so no failing queue is waited for."""
    events = [ev("queue_state", 0, "p", attributes={"kind": "standard", "visibility_timeout_s": 30})]
    for n in range(500):
        about = {"queue": "p", "message_id": f"w{n}"}
        got = ev("received", n / 2 + 0.01, receive_count=1, consumer="w", **about)
        events += [ev("sent", n / 2, **about), got, ev("deleted", n / 2 + 0.1, consumer="w", **about)]
    for n in range(200):
        about = {"queue": "p", "message_id": "fast", "consumer": "w"}
        events += [ev("received", 60.1 + 0.9 * n, receive_count=n + 1, **about), ev("released", 60.15 + 0.9 * n, **about)]
    for n in range(4):
        about = {"queue": "p", "message_id": "slow", "consumer": "w"}
        events.append(ev("received", 150 + 31 * n, receive_count=n + 1, sent_at=ev("x", 149)["at"], **about))
    found = judged(in_steps(sorted(events, key=lambda e: e["at"]), 5, 250))
    begun = [c.finding for c in found.changes if c.finding.key.signal == "PoisonMessage" and c.status == "firing"]
    assert [(f.key.message_id, f.folded) for f in begun] == [("fast", None), ("slow", None)]
