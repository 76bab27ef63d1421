"""Queues with a signal that lasts are not judged in every step for it: wrong settings, missing telemetry, no messages."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from streaming.judge.findings import firing as module
from streaming.judge.findings.lasting import is_lasting
from streaming.judge.findings.signals import SignalKey, SignalName
from tests.core.driving import T0, event, run_steps
from tests.judge.driving import SETTINGS, Judged, Step, in_steps, in_steps_closely_from, judged, judged_reports

pytestmark = pytest.mark.simulation

MINUTE_MS = 60_000
EVERY_S, UNTIL_S = 10, 30 * 60
POLICY = {"max_receive_count": 5, "dead_letter_queue": "d"}
WELL, UNSAFE = {"kind": "standard", "retention_s": 345_600, **POLICY}, {"kind": "standard", "retention_s": 345_600}
RELAYED = [{"rule": "no_encryption", "summary": "Its messages are not encrypted."}]


def polled(queue: str, minute: int, **attributes: Any) -> dict[str, Any]:
    """A collector's report of a queue, once a minute."""
    counts = {"visible": 0, "in_flight": 0, "delayed": 0}
    return event("queue_state", minute * MINUTE_MS + 1_000, queue, attributes=counts | attributes)


def work(queue: str, at_ms: int) -> list[dict[str, Any]]:
    """A message is sent and processed."""
    about = {"message_id": f"{queue}-{at_ms}"}
    received = event("received", at_ms + 100, queue, receive_count=1, consumer="w", **about)
    return [event("sent", at_ms, queue, **about), received, event("deleted", at_ms + 200, queue, **about)]


def load(*others: dict[str, Any]) -> list[Step]:
    """Steps of ten seconds over three queues with a message a minute, of which two have a setting that is reported as wrong."""
    events = []
    for minute in range(UNTIL_S // 60):
        events += [one for queue in ("well", "unsafe", "relayed") for one in work(queue, minute * MINUTE_MS + 20_000)]
        events += [polled("well", minute, **WELL), polled("unsafe", minute, **UNSAFE)]
        events += [polled("relayed", minute, **WELL, findings=RELAYED)]
    return in_steps(sorted([*events, *others], key=lambda e: e["at"]), EVERY_S, UNTIL_S)


def rules(said: Judged) -> list[list[str]]:
    """The rules of QueueMisconfigured that fire at each step."""
    return [sorted(str(f.key.part) for f in s.firing if f.key.signal == "QueueMisconfigured") for s in said.snapshots]


def test_a_queue_with_a_wrong_setting_is_judged_as_seldom_as_one_without(evaluated: list[tuple[int, str]]) -> None:
    """The signal fires all the time."""
    said = judged(load())
    assert all(firing == ["no_dead_letter_queue", "no_encryption"] for firing in rules(said)[1:])
    times = {queue: sum(name == queue for _, name in evaluated) for queue in ("well", "unsafe", "relayed")}
    assert times["unsafe"] == times["relayed"] == times["well"] < len(said.snapshots) / 2


REPAIRED = [polled("unsafe", 20, **WELL) | {"at": T0 + 20 * MINUTE_MS + 3_000}]
DEAD_LETTER_QUEUE = [polled("d", minute, visible=0, retention_s=1_209_600 if minute >= 20 else 60) for minute in range(30)]


@pytest.mark.parametrize("others", [[], REPAIRED, DEAD_LETTER_QUEUE], ids=["all the time", "repaired", "repaired elsewhere"])
def test_everything_is_the_same_as_if_it_were_judged_in_every_step(
    others: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fires with its evidence, every change, and the views."""
    tracked = run_steps(load(*others), SETTINGS)
    some = judged_reports(tracked)
    monkeypatch.setattr(module, "is_lasting", never)
    every = judged_reports(tracked)
    assert some.changes == every.changes
    for one, other in zip(some.snapshots, every.snapshots, strict=True):
        assert (one.firing, list(one.queues)) == (other.firing, list(other.queues)), one.at_ms


def test_it_ends_when_the_setting_is_repaired_in_its_dead_letter_queue() -> None:
    """Nothing is reported of the queue itself at that step."""
    said = judged(load(*DEAD_LETTER_QUEUE))
    ended = {at for at, signal, status, key in said.changes_seen() if status == "resolved" and "dead_letter_retention" in key}
    assert ended == {20 * MINUTE_MS + 10_000}


def test_a_rate_is_looked_at_in_every_step() -> None:
    """Another signal of the same name is not meant."""
    assert not is_lasting(SignalKey("QueueMisconfigured", "aws_sqs", "", "q.fifo", part="fifo_throughput"))


def silent() -> list[dict[str, Any]]:
    """A message every ten seconds for forty minutes, and one at the end."""
    return [one for at_s in [*range(0, 2_400, 10), 3_305] for one in work("q", at_s * 1_000)]


def test_a_queue_stays_silent_until_a_message_comes() -> None:
    """Hours later the gaps between samples exceed ten minutes: they no longer show when messages came, which is remembered."""
    hour_s = 3_600
    events = [one for at_s in [*range(0, hour_s, 60), 10 * hour_s] for one in work("q", at_s * 1_000)]
    events += [polled("q", minute) for minute in range(1, 10 * 60, 5)]
    said = judged(in_steps(sorted(events, key=lambda e: e["at"]), 60, 10 * hour_s + 120))
    changes = [(at // 1_000, status) for at, signal, status, _ in said.changes_seen() if signal == "QueueSilent"]
    assert [status for _, status in changes] == ["firing", "resolved"]
    assert changes[-1][0] == 10 * hour_s
    silences = [f for snapshot in said.snapshots for f in snapshot.firing if f.key.signal == "QueueSilent"]
    assert {f.evidence["last_message_at"] for f in silences} == {T0 + (hour_s - 60) * 1_000}


def test_half_an_hour_of_traffic_is_remembered_when_its_first_samples_have_gone() -> None:
    """Samples older than ten minutes are a minute apart: the first one left is from less than half an hour before the silence."""
    events = [one for at_s in range(45, 1_910, 15) for one in work("q", at_s * 1_000)]
    said = judged(in_steps(events, 10, 3_600))
    assert [status for _, signal, status, _ in said.changes_seen() if signal == "QueueSilent"] == ["firing"]


def test_as_many_messages_are_due_as_came_in_an_hour_before() -> None:
    """One a minute for three hours. A day later, the sample from which that hour is counted is nearly two hours older."""
    hour_s, busy_s = 3_600, 10_800
    events = [one for at_s in range(0, busy_s, 60) for one in work("q", at_s * 1_000)]
    events += [polled("q", minute) for minute in range(1, 30 * 60, 20)]
    times_s = [*range(60, busy_s + hour_s, 120), *range(busy_s + hour_s, 30 * hour_s, 1_200)]
    steps = [
        (1_000 * at_s, [e for e in events if 1_000 * before_s < e["at"] - T0 <= 1_000 * at_s])
        for before_s, at_s in pairwise([-1, *times_s])
    ]
    silences = [f for snapshot in judged(steps).snapshots for f in snapshot.firing if f.key.signal == "QueueSilent"]
    assert silences[-1].evidence["silent_s"] > 24 * hour_s
    assert {round(60 * f.evidence["messages_due"] / f.evidence["silent_s"], 1) for f in silences} == {1.0}


def test_a_queue_with_a_message_every_nine_minutes_is_silent_when_twenty_are_missing() -> None:
    """After three hours: samples of that age are nine minutes apart, and no longer show that its traffic was steady."""
    every_s = 540
    events = [one for at_s in range(0, 40 * every_s, every_s) for one in work("q", at_s * 1_000)]
    events += [polled("q", minute) for minute in range(62 * every_s // 60)]
    said = judged(in_steps(sorted(events, key=lambda e: e["at"]), 30, 62 * every_s))
    assert [f.key.queue for f in said.firing("QueueSilent")] == ["q"]


def half_seen() -> list[dict[str, Any]]:
    """The broker counts twice as many dead letters as are reported, until half of them is gone at the end."""
    moved = [event("dead_lettered", 1_000 * n, "source", message_id=f"m{n}", to_queue="d") for n in range(20)]
    return [*moved, *(polled("d", minute, visible=40 if minute < 55 else 20) for minute in range(56))]


def expiring(queue: str) -> list[dict[str, Any]]:
    """A dead letter whose retention of an hour ends 3,310 s after the first event."""
    sent_at = T0 - 290_000 if queue == "d" else T0  # in a FIFO queue, retention starts anew with the move
    last = event("received", 1_000, "source", message_id="m", receive_count=5, sent_at=sent_at, consumer="w")
    moved = event("dead_lettered", 2_000, "source", message_id="m", to_queue=queue)
    retention_s = 3_600 if queue == "d" else 3_308
    return [last, moved, *(polled(queue, minute, visible=1, retention_s=retention_s) for minute in range(56))]


def abandoned(*, reported: bool) -> list[dict[str, Any]]:
    """Consumers leave after ten minutes, while messages go on coming for a while. Somebody returns at the end."""
    if not reported:
        return [polled("q", minute, visible=10 if minute < 54 else 0) for minute in range(56)]
    sends = [event("sent", 10_000 * n, "q", message_id=f"left-{n}") for n in range(60, 70)]
    returned = {"message_id": "left-60", "consumer": "w"}
    last = [event("received", 3_303_000, "q", receive_count=1, **returned), event("deleted", 3_305_000, "q", **returned)]
    return [one for n in range(60) for one in work("q", 10_000 * n)] + sends + last


def hung() -> list[dict[str, Any]]:
    """One of two consumers hangs after ten minutes, and the queue is quiet. Its message is deleted at the end."""
    about = {"message_id": "hung", "consumer": "h"}
    taken = [event("sent", 600_000, "q", message_id="hung"), event("received", 601_000, "q", receive_count=1, **about)]
    states = [polled("q", minute, in_flight=int(10 <= minute < 55), visibility_timeout_s=7_200) for minute in range(56)]
    return (
        [one for n in range(60) for one in work("q", 10_000 * n)] + taken + states + [event("deleted", 3_305_000, "q", **about)]
    )


@pytest.mark.parametrize(
    ("events", "signal"),
    [
        (silent(), "QueueSilent"),
        (hung(), "SlowConsumer"),
        (half_seen(), "TelemetryPartial"),
        (expiring("d"), "DeadLetterExpiring"),
        (expiring("d.fifo"), "DeadLetterExpiring"),
        (abandoned(reported=True), "QueueStalled"),
        (abandoned(reported=False), "QueueStalled"),
    ],
    ids=[
        "silent",
        "a consumer hangs",
        "half seen",
        "expiring",
        "expiring in a FIFO queue",
        "abandoned",
        "abandoned, by counts alone",
    ],
)
def test_a_signal_that_may_last_for_days_is_refreshed_every_ten_seconds(
    events: list[dict[str, Any]], signal: SignalName, evaluated: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins and ends at the same step as if the queue were judged in every step. From 3,200 s on steps take a second."""
    tracked = run_steps(in_steps_closely_from(events, 3_200, (20, 1), 3_320), SETTINGS)
    some = judged_reports(tracked)
    closely = [at for at, queue in evaluated if 3_210_000 <= at < 3_300_000 and queue != "source"]
    monkeypatch.setattr(module, "is_lasting", never)
    every = judged_reports(tracked)
    assert some.changes_seen() == every.changes_seen()
    assert [status for _, name, status, _ in some.changes_seen() if name == signal] == ["firing", "resolved"]
    assert 9 <= len(closely) <= 20
    for one, other in zip(some.snapshots, every.snapshots, strict=True):
        assert [f.key for f in one.firing] == [f.key for f in other.firing]
        assert [abs(f.since_ms - g.since_ms) for f, g in zip(one.firing, other.firing, strict=True)] == [0] * len(one.firing)


def test_a_queue_that_was_as_silent_yesterday_is_not_judged_in_every_step(evaluated: list[tuple[int, str]]) -> None:
    """By the rate of its last hour messages are due, by that of yesterday they are not."""
    hour_s, day_s = 3_600, 86_400
    again_s, closely_from_s = day_s + 3 * hour_s, day_s + 4 * hour_s + 1_800
    busy = (range(hour_s), range(again_s, again_s + hour_s))
    events = [one for times in busy for at_s in times[::30] for one in work("q", at_s * 1_000)]
    events += [polled("q", minute, visible=0) for minute in range(0, closely_from_s // 60, 10)]
    apart = {*busy[0][::60], *range(hour_s, again_s, 600), *range(again_s, closely_from_s, 60)}
    at = iter(sorted(events, key=lambda e: e["at"]))
    steps: list[Step] = []
    due = next(at, None)
    for now_s in sorted(apart | set(range(closely_from_s, closely_from_s + 60))):
        mine = []
        while due is not None and due["at"] - T0 <= now_s * 1_000:
            mine.append(due)
            due = next(at, None)
        steps.append((now_s * 1_000, mine))
    said = judged(steps)
    fired = [at for at, signal, status, _ in said.changes_seen() if (signal, status) == ("QueueSilent", "firing")]
    assert len(fired) == 1
    assert fired[0] < day_s * 1_000
    assert len([at for at, _ in evaluated if at >= closely_from_s * 1_000]) <= 12


def never(_key: SignalKey) -> bool:
    """Instead of `is_lasting`: every queue with a signal is judged in every step."""
    return False
