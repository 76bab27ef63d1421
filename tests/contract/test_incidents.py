"""A broken deploy and a slow one, by name: QueueFailing, QueueLagging, and the two quieter ones of their kind."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.contract.replaying import Lines, ev, ms, replayed

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
STANDARD = ev("queue_state", 0, attributes={"visibility_timeout_s": 30, "max_receive_count": 10, "dead_letter_queue": "d"})


def delivered(n: int, at_s: float, every_s: float, failing: set[int], prefix: str = "m", consumer: str = "w") -> Events:
    """Return `n` messages, each sent, received and deleted a second later, except those of `failing`, which are released."""
    out = []
    for i in range(n):
        about, at = {"message_id": f"{prefix}{i}"}, at_s + i * every_s
        out += [ev("sent", at, **about), ev("received", at + 1, receive_count=1, consumer=consumer, **about)]
        out.append(ev("released" if i in failing else "deleted", at + 2, **about))
    return out


def ordered(events: Events) -> Events:
    """Return events sorted by time."""
    return sorted(events, key=lambda e: e["at"])


def of(events: Events, folder: Path, until_s: float, apart_s: int = 1) -> Lines:
    """Replay them."""
    return replayed(ordered([STANDARD, *events, ev("heartbeat", until_s, consumer="x")]), folder, apart_s=apart_s)


@pytest.mark.parametrize(
    ("n", "failing", "fires"),
    [(20, 10, True), (20, 9, False), (19, 19, False), (40, 20, True), (40, 19, False)],
    ids=["half of twenty", "one fewer", "nineteen are too few", "half of forty", "less than half"],
)
def test_queue_failing_from_half_of_twenty_on(tmp_path: Path, n: int, failing: int, fires: bool) -> None:
    """Return deliveries that ended in five minutes, with failures spread evenly among the others."""
    step = n / failing
    chosen = {math.ceil((i + 1) * step) - 1 for i in range(failing)}
    lines = of(delivered(n, 0, 5, chosen), tmp_path, n * 5 + 60)
    assert bool(lines.signals("QueueFailing", "firing")) is fires


def test_a_broken_deploy_is_one_page_and_folds_its_poison(tmp_path: Path) -> None:
    """Receives without deletions fire within 50 s of the end of the first window, and fold the signals they explain."""
    events = delivered(120, 0, 1, set())
    for i in range(150):
        for receive in range(4):
            about = {"message_id": f"bad{i}", "consumer": "w"}
            if not receive:
                events.append(ev("sent", 120 + i, message_id=f"bad{i}"))
            events.append(ev("received", 121 + i + 32 * receive, receive_count=receive + 1, **about))
    lines = of(events, tmp_path, 420, apart_s=5)
    (reported,) = lines.times("QueueFailing", "firing")
    assert 150 < reported <= 200
    poison = lines.signals("PoisonMessage", "firing")
    assert len(poison) > 50
    assert {x.get("folded") for x in poison} == {"QueueFailing"}, "what came before it was held back"
    assert lines.metric("queue_status", queue="q", status="failing")[360] == 1
    assert lines.metric("signals_folded", queue="q", signal="PoisonMessage")[360] > 50
    assert not lines.metric("signals", queue="q", signal="PoisonMessage").get(360)


def test_a_single_poison_message_is_as_loud_as_ever(tmp_path: Path) -> None:
    """In a healthy queue nothing is folded."""
    events = delivered(100, 0, 2, set())
    events += [
        ev("sent", 10, message_id="bad"),
        *(ev("received", 20 + 40 * n, message_id="bad", receive_count=n + 1) for n in range(4)),
    ]
    lines = of(events, tmp_path, 240)
    (fired,) = lines.signals("PoisonMessage", "firing")
    assert "folded" not in fired
    assert not lines.signals("QueueFailing")


def test_one_bad_consumer_is_named(tmp_path: Path) -> None:
    """One consumer fails nearly everything, the others nearly nothing: a bad host, not a bad deploy."""
    events = delivered(100, 0, 2, set(), "a", "good") + delivered(160, 20, 1, set(range(160)), "b", "worker-7")
    lines = of(events, tmp_path, 260, apart_s=5)
    (fired, *_) = lines.signals("QueueFailing", "firing")
    later = [x for x in lines.lines if x["kind"] == "signal" and x["signal"] == "QueueFailing"][-1]
    assert later["evidence"]["consumer"] == "worker-7"
    assert later["evidence"]["consumer_failed_ratio"] > 0.9
    assert later["evidence"]["others_failed_ratio"] < 0.1
    assert fired["severity"] == "critical"


@pytest.mark.parametrize(("bad", "fires"), [(21, True), (19, False)], ids=["twenty after its first failure", "nineteen"])
def test_one_bad_consumer_among_many_is_named_though_the_queue_is_not_failing(tmp_path: Path, bad: int, fires: bool) -> None:
    """It fails everything, a tenth of all deliveries: it is named within 90 s of its tenth failure, and no other is blamed."""
    events = [e for w in range(3) for e in delivered(100, w, 3, set(), f"{w}-", f"worker-{w}")]
    events += delivered(bad, 60, 4.5, set(range(bad)), "b", "worker-7")
    lines = of(events, tmp_path, 300, apart_s=5)
    fired = lines.signals("QueueFailing", "firing")
    assert bool(fired) is fires
    if fires:
        assert fired[0]["evidence"]["consumer"] == "worker-7"
        assert fired[0]["evidence"]["failed_ratio"] < 0.5
        assert lines.times("QueueFailing", "firing")[0] <= 62 + 4.5 * 20 + 90
        assert not lines.metric("queue_status", queue="q", status="failing").get(180), "the queue is not failing"


def test_nobody_is_blamed_while_the_others_fail_too(tmp_path: Path) -> None:
    """Two of five fail at other consumers as well: messages, not a host."""
    events = [e for w in range(3) for e in delivered(100, w, 3, set(range(0, 100, 5)), f"{w}-", f"worker-{w}")]
    events += delivered(40, 60, 4.5, set(range(40)), "b", "worker-7")
    assert not of(events, tmp_path, 300, apart_s=5).signals("QueueFailing")


def test_a_lull_does_not_end_a_clear_case(tmp_path: Path) -> None:
    """It fires before half of all deliveries in five minutes have failed. Then fewer come than the rule needs in 40 s."""
    events = delivered(200, 0, 1, set()) + delivered(80, 200, 0.5, set(range(80)), "bad")
    events += delivered(15, 240, 3, set(range(15)), "few")
    lines = of(events, tmp_path, 286)
    assert [status for status in ("firing", "resolved") if lines.signals("QueueFailing", status)] == ["firing"]


@pytest.mark.parametrize(("killed_s", "back_s"), [(201, 240), (202, 255), (206, 255)])
def test_a_fleet_that_is_killed_and_comes_back_is_not_failing(tmp_path: Path, killed_s: int, back_s: int) -> None:
    """It hung for as long as a visibility timeout: what it held comes back over as long, while few others are finished."""
    events = delivered(200, 0, 1, set())
    for i in range(60):
        about, at = {"message_id": f"held{i}"}, killed_s - 30 + i / 2
        events += [ev("sent", at - 1, **about), ev("received", at, receive_count=1, consumer="w", **about)]
        events.append(ev("received", back_s + 5 + i, receive_count=2, consumer="w", **about))
        events.append(ev("deleted", back_s + 6 + i, **about))
    events += delivered(100, back_s, 1, set(), "later")
    assert not of(ordered(events), tmp_path, 400).signals("QueueFailing")


@pytest.mark.parametrize("killed_s", [102, 104])
def test_a_fleet_of_long_work_that_is_restarted_is_not_failing(tmp_path: Path, killed_s: int) -> None:
    """A message takes 28 s, so what the killed consumers held comes back over 28 s. The new ones finish nothing before that."""
    events: Events = []
    for i in range(2 * killed_s):
        about, at = {"message_id": f"m{i}"}, i / 2
        events += [ev("sent", at, **about), ev("received", at, receive_count=1, consumer="w", **about)]
        if at + 28 >= killed_s:
            again = max(at + 30, killed_s + 12)
            events.append(ev("received", again, receive_count=2, consumer="w", **about))
            events.append(ev("deleted", again + 28, **about))
        else:
            events.append(ev("deleted", at + 28, **about))
    assert not of(ordered(events), tmp_path, 300).signals("QueueFailing")


def test_consumers_that_are_gone_do_not_fail(tmp_path: Path) -> None:
    """The windows of their few messages run out, and no consumer receives any more: that is not a broken consumer."""
    events = delivered(60, 0, 1, set())
    for i in range(30):
        about = {"message_id": f"held{i}"}
        events += [ev("sent", 50, **about), ev("received", 60 + i / 10, receive_count=1, consumer="w", **about)]
    lines = of(events, tmp_path, 400)
    assert not lines.signals("QueueFailing")
    assert lines.signals("QueueStalled", "firing")


def test_poison_that_was_held_back_is_announced_when_the_queue_does_not_fail(tmp_path: Path) -> None:
    """A third of the deliveries fail for eight minutes: signals are held back for the window of QueueFailing, then announced."""
    events = delivered(560, 0, 1, set())
    for i in range(36):
        about = {"message_id": f"bad{i}"}
        events.append(ev("sent", 60 + 9 * i, **about))
        events += [ev("received", 61 + 9 * i + 31 * n, receive_count=n + 1, consumer="w", **about) for n in range(6)]
    lines = of(ordered(events), tmp_path, 560, apart_s=5)
    assert not lines.signals("QueueFailing")
    poison = lines.signals("PoisonMessage", "firing")
    held, loud = [x for x in poison if x.get("folded")], [x for x in poison if not x.get("folded")]
    assert held
    assert {x["message_id"] for x in held} <= {x["message_id"] for x in loud} | {
        x["message_id"] for x in lines.signals("PoisonMessage", "resolved")
    }
    assert len({x["message_id"] for x in loud}) > 20


def flow(seconds: int, every_s: float, work_s: float, workers: int, at_s: float = 0, first: int = 0) -> Events:
    """Simulate a queue with `workers` consumers that take messages in order and need `work_s` for each."""
    free = [at_s] * workers
    out = []
    for i in range(int(seconds / every_s)):
        sent = at_s + i * every_s
        worker = min(range(workers), key=lambda w: free[w])
        begin = max(sent + 0.1, free[worker])
        free[worker] = begin + work_s
        about = {"message_id": f"f{first + i}"}
        out.append(ev("sent", sent, **about))
        if begin < at_s + seconds:
            out.append(
                ev("received", begin, receive_count=1, consumer=f"w{worker}", invisible_until=ev("x", begin + 600)["at"], **about)
            )
        if free[worker] < at_s + seconds:
            out.append(ev("deleted", free[worker], consumer=f"w{worker}", **about))
    return out


def test_a_slow_deploy_is_lagging_within_ten_minutes(tmp_path: Path) -> None:
    """Processing becomes ten times slower at a known instant: it is reported as a warning, with the rates and the cause."""
    lines = of(flow(900, 1, 1.5, 4) + flow(900, 1, 15, 4, 900, 900), tmp_path, 1_800, apart_s=10)
    (fired, *_) = lines.signals("QueueLagging", "firing")
    assert 900 < lines.times("QueueLagging", "firing")[0] <= 1_500
    assert fired["severity"] == "warning"
    assert "processing takes" in fired["evidence"]["cause"]
    assert fired["evidence"]["rate_in_per_s"] > fired["evidence"]["rate_out_per_s"]


def test_lagging_that_begins_to_cost_messages_fires_again_as_critical(tmp_path: Path) -> None:
    """Retention is shortened while it fires: who only reads the lines sees that it pages from then on."""
    shorter = ev("queue_state", 1_700, attributes={"retention_s": 3_600})
    lines = of([*flow(900, 1, 1.5, 4), *flow(900, 1, 15, 4, 900, 900), shorter], tmp_path, 1_800, apart_s=10)
    fired = lines.signals("QueueLagging", "firing")
    assert [one["severity"] for one in fired] == ["warning", "critical"]
    assert fired[1]["at"] == ms(1_700)


def test_a_burst_that_recovers_is_not_lagging(tmp_path: Path) -> None:
    """A backlog grows for two minutes and then drains."""
    burst = [ev("sent", 300 + i / 5, message_id=f"b{i}") for i in range(300)]
    burst += [
        e
        for i in range(300)
        for e in (
            ev("received", 305 + i, message_id=f"b{i}", receive_count=1, invisible_until=ev("x", 2_000)["at"]),
            ev("deleted", 306 + i, message_id=f"b{i}"),
        )
    ]
    assert not of(burst, tmp_path, 900, apart_s=5).signals("QueueLagging")


def test_work_that_outlasts_its_window(tmp_path: Path) -> None:
    """Messages deleted after the window ended give a separate finding, with a timeout that would fit."""
    events = delivered(60, 0, 10, set())
    for i in range(6):
        about = {"message_id": f"long{i}", "consumer": "w"}
        events += [ev("sent", 50 + 90 * i, message_id=f"long{i}"), ev("received", 51 + 90 * i, receive_count=1, **about)]
        events.append(ev("deleted", 96 + 90 * i, **about))
    (fired,) = of(events, tmp_path, 700, apart_s=5).signals("WindowTooShort", "firing")
    assert fired["evidence"]["outlived_deliveries"] >= 5
    assert fired["evidence"]["timeout_that_fits_s"] >= 45


def test_work_may_last_as_long_as_it_does_where_no_timeout_is_known(tmp_path: Path) -> None:
    """No collector reports the visibility timeout, and no message comes back: it is longer than SQS's default."""
    events = delivered(60, 0, 10, set())
    for i in range(20):
        about = {"message_id": f"long{i}", "consumer": "w"}
        events += [ev("sent", 30 * i, message_id=f"long{i}"), ev("received", 1 + 30 * i, receive_count=1, **about)]
        events.append(ev("deleted", 61 + 30 * i, **about))
    lines = replayed(ordered([*events, ev("heartbeat", 700, consumer="x")]), tmp_path, apart_s=5)
    assert not lines.signals("WindowTooShort")
    again = [ev("received", 35 + 30 * i, receive_count=2, message_id=f"long{i}", consumer="other") for i in range(20)]
    lines = replayed(ordered([*events, *again, ev("heartbeat", 700, consumer="x")]), tmp_path, apart_s=5)
    (fired,) = lines.signals("WindowTooShort", "firing")
    assert "visibility_timeout_s" not in fired["evidence"]
    assert "still being processed when their visibility window ended" in fired["evidence"]["summary"]


def test_work_of_a_fifo_queue_that_outlasts_its_window(tmp_path: Path) -> None:
    """SQS refuses to delete the message then, and delivers it again: the refusals give the same finding."""
    events = [ev("queue_state", 0, "q.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 30})]
    events += [e | {"queue": "q.fifo", "group": e["message_id"]} for e in delivered(60, 0, 10, set())]
    for i in range(6):
        about = {"queue": "q.fifo", "message_id": f"long{i}", "group": f"g{i}"}
        events.append(ev("sent", 50 + 90 * i, **about))
        for attempt, begin in enumerate((51, 82)):
            events += [
                ev("received", begin + 90 * i, receive_count=attempt + 1, consumer="w", **about),
                ev("deleted" if attempt else "outlived", begin + (20 if attempt else 45) + 90 * i, consumer="w", **about),
            ]
    (fired,) = of(events, tmp_path, 700, apart_s=5).signals("WindowTooShort", "firing")
    assert (fired["evidence"]["outlived_deliveries"], fired["evidence"]["timeout_that_fits_s"]) == (5, 60)


def test_a_fifo_deletion_after_the_known_window_shows_that_it_was_extended(tmp_path: Path) -> None:
    """SQS would have refused it otherwise: the extensions are not reported, and nothing is worked on twice."""
    events = [ev("queue_state", 0, "q.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 30})]
    for i in range(20):
        about = {"queue": "q.fifo", "message_id": f"long{i}", "group": f"g{i}"}
        events += [ev("sent", 30 * i, **about), ev("received", 30 * i + 1, receive_count=1, consumer="w", **about)]
        events.append(ev("deleted", 30 * i + 90, consumer="w", **about))
    assert not of(events, tmp_path, 700, apart_s=5).signals("WindowTooShort")


def test_a_poison_message_that_only_takes_too_long(tmp_path: Path) -> None:
    """Its consumers finish it every time, but its deletion is refused: the signal says so."""
    about = {"queue": "q.fifo", "message_id": "m", "group": "g", "consumer": "w"}
    events = [ev("queue_state", 0, "q.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 30}), ev("sent", 5, **about)]
    for n in range(3):
        events += [ev("received", 10 + 40 * n, receive_count=n + 1, **about), ev("outlived", 49 + 40 * n, **about)]
    evidence = of(events, tmp_path, 120).signals("PoisonMessage")[-1]["evidence"]
    assert evidence["refused_settlements"] == 2
    assert "refused 2 times: the work takes longer than the visibility window of 30 s" in evidence["summary"]


def test_a_failing_fifo_queue_whose_work_outlasts_every_window(tmp_path: Path) -> None:
    """The consumers are not broken: the page says what to change."""
    events = [ev("queue_state", 0, "q.fifo", attributes={"kind": "fifo", "visibility_timeout_s": 30})]
    for i in range(60):
        about = {"queue": "q.fifo", "message_id": f"m{i}", "group": f"g{i}"}
        events += [ev("sent", 5 * i, **about), ev("received", 5 * i + 1, receive_count=1, **about)]
        events.append(ev("outlived", 5 * i + 46, **about))
    (fired,) = of(events, tmp_path, 240).signals("QueueFailing", "firing")
    assert (
        "deliveries were finished, but only after their visibility window of 30 s had ended: raise the visibility timeout"
        in fired["evidence"]["summary"]
    )


@pytest.mark.parametrize(("silence_s", "fires"), [(50, False), (120, True)], ids=["not yet", "twenty were due"])
def test_a_queue_that_always_has_traffic_falls_silent(tmp_path: Path, silence_s: int, fires: bool) -> None:
    """By its own rate of the last hour twenty messages were due; it is info."""
    lines = of(delivered(1_400, 0, 3, set()), tmp_path, 4_200 + silence_s, apart_s=10)
    fired = lines.signals("QueueSilent", "firing")
    assert bool(fired) is fires
    assert {x["severity"] for x in fired} <= {"info"}


def test_a_failed_and_a_stalled_redrive(tmp_path: Path) -> None:
    """They follow from the move task's state, as the collector reports it."""
    running = {"status": "RUNNING", "started_at": ev("x", 0)["at"], "moved": 5, "to_move": 50}
    events = [
        ev("queue_state", at, "d", attributes={"redrive_task": running | {"progressed_at": ev("x", 10)["at"]}})
        for at in (10, 300, 700)
    ]
    failed = running | {"status": "FAILED", "failure_reason": "AccessDenied"}
    events += [ev("queue_state", 900, "d", attributes={"redrive_task": failed}), ev("heartbeat", 1_000, consumer="x")]
    lines = replayed(ordered(events), tmp_path)
    assert lines.times("RedriveStalled", "firing") == [pytest.approx(610, abs=2)]
    (fired,) = lines.signals("RedriveFailed", "firing")
    assert fired["evidence"]["reason"] == "AccessDenied"


def test_a_redrive_that_only_its_application_reports_is_not_called_stalled(tmp_path: Path) -> None:
    """It reports the start and no progress. Without a collector that may list move tasks, nobody says when it ended."""
    started = {"status": "RUNNING", "to_queue": "q", "task_id": "t-1"}
    events = [ev("queue_state", 10, "d", attributes={"redrive_task": started}), ev("heartbeat", 2_000, consumer="x")]
    assert not replayed(events, tmp_path, apart_s=10).signals("RedriveStalled")
