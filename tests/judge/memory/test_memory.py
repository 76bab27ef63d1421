"""The judge's memory: stored and read back it gives the same future, and judging twice gives the same result."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.core.settings import QueueName
from streaming.judge.findings.firing import FiringSignals
from streaming.judge.findings.signals import Finding, SignalChange, SignalKey
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.memory.queue_memory import QueueMemory
from streaming.judge.metrics import samples
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS, Judged, Step, in_steps, judged

pytestmark = pytest.mark.simulation

WORKER = {"consumer": "conn:1:1", "system": "activemq", "queue": "work"}


def everything() -> list[Step]:
    """Return half an hour in steps of ten seconds in which most signals begin and end."""
    events: list[dict[str, Any]] = [
        event(
            "queue_state",
            0,
            attributes={"kind": "standard", "visibility_timeout_s": 30, "max_receive_count": 4, "dead_letter_queue": "dead"},
        ),
        event("queue_state", 0, "pay.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 20, "look_ahead": 4}),
        event("queue_state", 0, "hasty", attributes={"max_receive_count": 1, "dead_letter_queue": "dead"}),
        event("queue_state", 600_000, "hasty", attributes={"max_receive_count": 5, "dead_letter_queue": "dead"}),
        event("heartbeat", 0, consumer="collector"),
        event("heartbeat", 900_000, consumer="collector"),
    ]
    for n in range(40):
        about = {"message_id": f"g{n}"}
        events += [event("sent", 20_000 * n, **about), event("received", 20_000 * n + 2_000, consumer="quick", **about)]
        events.append(event("deleted", 20_000 * n + 2_500, **about))
    events += [event("received", 50_000 + 35_000 * n, message_id="bad", receive_count=n + 1) for n in range(4)]
    events.append(event("dead_lettered", 200_000, message_id="bad", to_queue="dead"))
    events += [
        event("sent", 1_000 * n, "pay.fifo", message_id=f"f{n}", group="aaaabcdefg"[n], sequence=str(n)) for n in range(10)
    ]
    events += [
        event("received", 9_000 + 25_000 * n, "pay.fifo", message_id="f0", group="a", receive_count=n + 1) for n in range(30)
    ]
    events += [event("sent", 300_000 + n, "fair", message_id=f"n{n}", group="loud" if n else "calm") for n in range(40)]
    events += [
        event("received", 301_000 + n, "fair", message_id=f"n{n}", group="loud", invisible_until=T0 + 700_000)
        for n in range(1, 36)
    ]
    events += [event("dropped", 400_000, "fair", message_id="n39", group="loud", reason="why")]
    for n in range(120):
        state = {"prefetch": 1, "dispatched": 1, "connected": True, "connected_at": T0}
        events.append({**event("consumer_state", 10_000 * n, attributes=state), **WORKER})
    events.append({**event("received", 5_000, message_id="long"), **WORKER})
    events.append({**event("sent", 6_000, message_id="next"), **WORKER})
    return in_steps(events, 10, 1_800)


@pytest.fixture(scope="module")
def straight() -> Judged:
    """What the judge says about that half hour; tests only read it."""
    return judged(everything())


def test_kept_and_read_back_between_any_two_steps_it_says_the_same(straight: Judged) -> None:
    """Return every change and its announcement, and every metric at the end."""
    restarted = judged(everything(), restart=True)
    assert {c.finding.key.signal for c in straight.changes} >= {
        "PoisonMessage",
        "DeadLetterArrived",
        "GroupStuck",
        "LookAheadSaturated",
        "ConcurrencyCollapsed",
        "QueueStalled",
        "SlowConsumer",
        "MessageDropped",
        "NoisyGroup",
        "QueueMisconfigured",
        "TelemetryStale",
    }
    assert restarted.changes == straight.changes
    assert list(samples(restarted.snapshots[-1], T0 + 1_800_000)) == list(samples(straight.snapshots[-1], T0 + 1_800_000))


def test_a_step_judged_again_from_the_memory_before_it_says_the_same() -> None:
    """A batch that runs twice announces nothing new: the announcements are the same."""
    memory = JudgeMemory.empty()
    for merged in run_steps(everything(), SETTINGS):
        before = memory.to_bytes()
        memory, snapshot, changes = judge(memory, merged, merged.now, SETTINGS)
        again, other, reported = judge(JudgeMemory.from_bytes(before), merged, merged.now, SETTINGS)
        assert [c.announcement for c in reported] == [c.announcement for c in changes]
        assert reported == changes
        assert other == snapshot
        assert again.to_bytes() == memory.to_bytes()


def test_nothing_is_announced_again_while_it_goes_on(straight: Judged) -> None:
    """No key begins twice without an end in between, and no announcement is used twice."""
    changes = straight.changes
    open_keys: set[SignalKey] = set()
    for change in changes:
        assert (change.finding.key in open_keys) == (change.status == "resolved"), change
        open_keys ^= {change.finding.key}
    assert len({c.announcement for c in changes}) == len(changes)


def test_totals_never_go_back() -> None:
    """Buckets of a histogram do not decrease from one to the next either; what was folded stays counted when it is gone."""
    groups = [event("sent", 1_000 * n, message_id=f"x{n}", group=f"x{n}") for n in range(14)]
    gone = [event("deleted", 60_000 + 1_000 * n, message_id=f"x{n}") for n in range(14)]
    steps = [(t, [*events, *(e for e in groups + gone if t - 10_000 < e["at"] - T0 <= t)]) for t, events in everything()[:60]]
    before: dict[str, float] = {}
    for snapshot in judged(steps).snapshots:
        totals = {f"{s.name}{s.labels}": s.value for s in samples(snapshot, snapshot.at_ms) if s.name.endswith("_total")}
        assert all(value >= before.get(name, 0) for name, value in totals.items())
        before = totals
        for queue in snapshot.queues:
            buckets: dict[str, list[float]] = {}
            for s in samples(snapshot, snapshot.at_ms):
                if s.name.endswith("_bucket") and s.labels["queue"] == queue.queue:
                    buckets.setdefault(s.name, []).append(s.value)
            assert all(counts == sorted(counts) for counts in buckets.values())
    assert before["queuewatch_folded_total{'what': 'groups'}"] >= 4


@pytest.mark.parametrize("every", [1, 3, 6])
def test_judged_rarely_or_often_the_same_fires(straight: Judged, every: int) -> None:
    """With ten, thirty or sixty seconds between steps, the same signals fire at common times, except those counted in checks."""
    steps = everything()
    merged: list[Step] = []
    for i in range(0, len(steps), every):
        merged.append((steps[i][0], [e for _, events in steps[max(0, i - every + 1) : i + 1] for e in events]))
    often = {s.at_ms: {f.key for f in s.firing} for s in straight.snapshots}
    for snapshot in judged(merged).snapshots:
        rarely = {f.key for f in snapshot.firing}
        differing = {k for k in rarely ^ often[snapshot.at_ms] if k.part not in ("ack", "prefetch")}
        # Durations count from when a condition is seen, so one step of the slower interval either way is allowed.
        around = [often.get(snapshot.at_ms + off * every * 10_000, set()) for off in (-1, 1)]
        due = set().union(*(often[snapshot.at_ms] ^ fired for fired in around))
        assert differing <= due, (snapshot.at_ms - T0, differing)


@pytest.mark.parametrize("blob", [b"", b"nonsense", JudgeMemory.empty().to_bytes()[:-4]])
def test_damaged_memory_is_refused(blob: bytes) -> None:
    """An error message is raised instead of a partly read memory."""
    with pytest.raises(ValueError, match="damaged"):
        JudgeMemory.from_bytes(blob)


def test_memory_with_any_changed_byte_is_refused(straight: Judged) -> None:
    """Also where it would only be found when the rules look at a queue: by then it is too late to roll the checkpoint back."""
    stored = straight.memory.to_bytes()
    assert JudgeMemory.from_bytes(stored).to_bytes() == stored
    for place in range(0, len(stored), 5):
        damaged = bytearray(stored)
        damaged[place] ^= 0x10
        with pytest.raises(ValueError, match="damaged"):
            JudgeMemory.from_bytes(bytes(damaged))


def test_what_is_damaged_in_memory_without_a_checksum_is_found_when_it_is_read() -> None:
    """Version 4 had none: what is remembered of a queue is parsed at once."""
    memory = JudgeMemory()
    memory.queues.put(QueueName("aws_sqs", "", "q"), QueueMemory(since={"backlog": 1}))
    memory.queues._lists[0] = '{"since":{"backlog":1]}'
    with pytest.raises(ValueError, match="the judge's memory is damaged"):
        JudgeMemory.from_bytes(b"QWJ5" + memory.to_bytes()[4:-4])


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"version":4,"queues":[]}',
        b'{"version":4,"queues":[],"at":1,"folded":{},"firing":[[1]]}',
        b'{"version":4,"queues":[],"at":1,"folded":{},"firing":[],"clock":{"hands":2}}',
        b'{"version":4,"queues":[[["a","b","c"],7]]}',
    ],
)
def test_memory_that_holds_something_else_is_refused_as_damaged(body: bytes) -> None:
    """Callers expect ValueError alone, whatever is wrong."""
    with pytest.raises(ValueError, match="the judge's memory is damaged"):
        JudgeMemory.from_bytes(zlib.compress(body))


def test_memory_of_a_newer_version_is_refused_by_its_number() -> None:
    """It is not damaged."""
    with pytest.raises(ValueError, match=r"^the judge's memory is of version 99; this queuewatch reads versions"):
        JudgeMemory.from_bytes(zlib.compress(b'{"version":99,"queues":[]}'))


@pytest.mark.parametrize("stored_by", [3, 4])
def test_memory_of_an_earlier_version_is_continued(straight: Judged, stored_by: int) -> None:
    """The memory after a quarter of an hour, as an earlier release stored it: the rest is the same as without a restart."""
    stored = (Path(__file__).parent / "memories" / f"version-{stored_by}.memory").read_bytes()
    memory = JudgeMemory.from_bytes(stored)
    assert len(memory.queues) == 6
    stored_at, changes = memory.at, []
    for merged in run_steps(everything(), SETTINGS):
        if merged.now > memory.at:
            memory, _, changed = judge(memory, merged, merged.now, SETTINGS)
            changes += changed
    expected = [change for change in straight.changes if change.at_ms > stored_at]
    assert [in_any_words(change) for change in changes] == [in_any_words(change) for change in expected]


def in_any_words(change: SignalChange) -> SignalChange:
    """Return a change without its sentence: a signal that the earlier release began ends in the words of that release."""
    evidence = {name: value for name, value in change.finding.evidence.items() if name != "summary"}
    return replace(change, finding=replace(change.finding, evidence=evidence))


@pytest.mark.parametrize(("stored", "announced_as"), [(True, "critical"), (False, None), ("warning", "warning"), (None, None)])
def test_signals_of_an_earlier_release_are_announced_as_they_were(stored: bool | str | None, announced_as: str | None) -> None:
    """It stored only whether they were."""
    key = SignalKey("QueueLagging", "aws_sqs", "", "q")
    finding = Finding(key, "critical", T0, {}, announced_as=stored)  # type: ignore[arg-type]
    memory = JudgeMemory.from_bytes(JudgeMemory(firing=FiringSignals({key: finding})).to_bytes())
    assert [one.announced_as for one in memory.firing] == [announced_as]
