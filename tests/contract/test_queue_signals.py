"""The signals about a queue, its consumers, settings and telemetry: that each fires, when, that it ends, and when it must not fire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streaming.core.settings import QueueRule, Settings
from tests.contract.replaying import Lines, ev, ms, replayed

DAY = 86_400


@pytest.mark.simulation
@pytest.mark.parametrize("finish", [False, True], ids=["no_receives", "no_progress"])
def test_queue_stalled_and_its_reasons(tmp_path: Path, finish: bool) -> None:
    """A visible backlog of which nothing is settled for five minutes; a settlement ends it."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 30})]
    events += [ev("sent", n, message_id=f"m{n}") for n in range(10)]
    if finish:
        events += [ev("received", 20 + 31 * n, message_id=f"m{n % 3}", receive_count=n // 3 + 1) for n in range(12)]
    events += [ev("deleted", 400, message_id="m0")]
    lines = replayed(events, tmp_path)
    (fired,) = lines.signals("QueueStalled", "firing")
    assert fired["at"] == ev("x", 300)["at"]
    assert fired["evidence"]["reason"] == ("no_progress" if finish else "no_receives")
    assert lines.times("QueueStalled", "resolved") == [400]


@pytest.mark.simulation
@pytest.mark.parametrize(("messages", "fires"), [(3, True), (2, False)])
def test_a_small_queue_is_stalled_whose_consumer_takes_all_of_it_again_and_again(
    tmp_path: Path, messages: int, fires: bool
) -> None:
    """Nothing is visible while it holds them, but what comes back is the same backlog. One or two messages may be bad themselves."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 30})]
    events += [ev("sent", 0, message_id="ok"), ev("received", 1, message_id="ok"), ev("deleted", 4, message_id="ok")]
    events += [ev("sent", 5, message_id=f"m{n}") for n in range(messages)]
    for turn in range(15):
        events += [ev("received", 10 + 60 * turn, message_id=f"m{n}", receive_count=turn + 1) for n in range(messages)]
    events += [ev("deleted", 855, message_id="m0")]
    lines = replayed(events, tmp_path)
    assert lines.times("QueueStalled", "firing") == ([340] if fires else [])
    assert lines.times("QueueStalled", "resolved") == ([855] if fires else [])
    assert {at for at, value in lines.metric("queue_status", status="stalled").items() if value} == (
        set(range(360, 855, 60)) if fires else set()
    )
    for fired in lines.signals("QueueStalled", "firing"):
        assert (fired["evidence"]["reason"], fired["severity"]) == ("no_progress", "critical")


@pytest.mark.simulation
def test_a_backlog_behind_long_work_is_not_stalled(tmp_path: Path) -> None:
    """One consumer with jobs of 450 s finishes nothing for five minutes; the first job pages, as nothing is known of its work yet.

    When the consumer dies, its message is in flight until its window ends at 2,710 s, which is about twice as long as is usual.
    """
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 900})]
    events += [ev("sent", n, message_id=f"m{n}") for n in range(8)]
    for n in range(5):
        events += [ev("received", 10 + 450 * n, message_id=f"m{n}", receive_count=1, consumer="w")]
        events += [ev("deleted", 459 + 450 * n, message_id=f"m{n}", consumer="w")] if n < 4 else []
    lines = replayed(events, tmp_path, until_s=3000)
    assert lines.times("QueueStalled", "firing") == [300, 2710]
    assert lines.times("QueueStalled", "resolved") == [459]
    statuses = [lines.metric("queue_status", status=status) for status in ("stopped", "stalled")]
    assert {at for status in statuses for at, value in status.items() if value and 459 < at < 2500} == set()


@pytest.mark.simulation
def test_a_stall_without_counts_takes_five_minutes_also_where_sends_are_not_reported(tmp_path: Path) -> None:
    """Counts are themselves half a minute old; what consumers report is not."""
    lines = replayed([ev("received", 0, message_id="m", receive_count=1)], tmp_path, until_s=400)
    (fired,) = lines.signals("QueueStalled", "firing")
    assert (fired["at"] - fired["since"], fired["evidence"]["basis"]) == (300_000, "consumers")


@pytest.mark.slow
def test_a_quiet_queue_raises_nothing(tmp_path: Path) -> None:
    """A day with one message every twenty minutes: no signal, and status ok throughout."""
    events = []
    for n in range(72):
        about = {"message_id": f"m{n}"}
        events += [
            ev("sent", 1200 * n, **about),
            ev("received", 1200 * n + 2, receive_count=1, **about),
            ev("deleted", 1200 * n + 3, **about),
        ]
    lines = replayed(events, tmp_path, every="5m")
    assert not lines.signals()
    assert set(lines.metric("queue_status", status="ok").values()) == {1}


@pytest.mark.simulation
def test_slow_consumer_compares_with_what_is_usual_here(tmp_path: Path) -> None:
    """With a median hold of 8 s the limit is ten times that, not 30 s."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 600})]
    for n in range(20):
        about = {"message_id": f"m{n}"}
        events += [ev("sent", 10 * n, **about), ev("received", 10 * n + 1, receive_count=1, consumer="quick", **about)]
        events += [ev("deleted", 10 * n + 9, **about)]
    events += [ev("sent", 200, message_id="slow"), ev("received", 201, message_id="slow", receive_count=1, consumer="hung")]
    lines = replayed(sorted([*events, ev("deleted", 400, message_id="slow")], key=lambda e: e["at"]), tmp_path)
    (fired,) = lines.signals("SlowConsumer", "firing")
    assert (fired["consumer"], fired["evidence"]["message_id"], fired["evidence"]["strategy"]) == ("hung", "slow", "hold")
    assert 201 + 65 < (fired["at"] - ev("x", 0)["at"]) / 1000 < 201 + 100
    assert lines.times("SlowConsumer", "resolved") == [400]


@pytest.mark.simulation
def test_a_visibility_that_was_changed_may_be_a_delayed_retry(tmp_path: Path) -> None:
    """A consumer that sets 120 s to try again later works on other messages meanwhile, which the words must allow for."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 30})]
    for n in range(60):
        about = {"message_id": f"m{n}", "consumer": "w"}
        events += [ev("received", 2 * n, receive_count=1, sent_at=ms(2 * n), **about)]
        events += [
            ev("extended", 2 * n + 1, invisible_until=ms(2 * n + 121), **about) if n == 20 else ev("deleted", 2 * n + 1, **about)
        ]
    (fired,) = replayed(events, tmp_path).signals("SlowConsumer", "firing")
    assert fired["evidence"]["extended"]
    assert "it may still be processing it, or delaying a retry" in fired["evidence"]["summary"]


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("connected", "fired_at"),
    [
        ({0: {}}, [40]),
        # It was there before the collector was.
        ({0: {"connected_at": ms(-300)}}, [10]),
        # A consumer that comes back counts anew.
        ({0: {}, 15: {"connected": False}, 45: {}}, [100]),
        ({0: {"connected": False}}, []),
    ],
    ids=["first report", "reported", "came back", "gone"],
)
def test_a_consumer_that_never_acknowledged(tmp_path: Path, connected: dict[int, dict[str, Any]], fired_at: list[float]) -> None:
    """AbortSlowAckConsumer counts from its subscription, which was no later than the first report. It checks at 10, 40, 70, 100 s."""
    events = [ev("sent", 10, message_id="m"), ev("received", 10, message_id="m", receive_count=1, consumer="c")]
    for at, attributes in connected.items():
        events.append(ev("consumer_state", at, consumer="c", attributes={"connected": True, "dispatched": 1, **attributes}))
    lines = replayed([{**one, "system": "activemq"} for one in events], tmp_path, until_s=100)
    assert lines.times("SlowConsumer", "firing", part="ack") == fired_at


@pytest.mark.simulation
@pytest.mark.parametrize(("visible", "fires"), [(20, True), (0, False)])
def test_a_full_window_while_the_broker_counts_more(tmp_path: Path, visible: int, fires: bool) -> None:
    """Sends are not reported, so only the broker's count shows whether more messages wait than the ten that the window holds."""
    events = []
    for at in range(120):
        about = {"message_id": f"m{at}", "consumer": "c"}
        events += [ev("received", at, receive_count=1, **about), ev("deleted", at + 10, **about)]
        if at % 10 == 0:
            state = {"connected": True, "prefetch": 10, "dispatched": 10}
            events.append(ev("queue_state", at, attributes={"visible": visible, "in_flight": 10}))
            events.append(ev("consumer_state", at, consumer="c", attributes=state))
    lines = replayed([{**one, "system": "activemq"} for one in events], tmp_path, until_s=120)
    assert lines.metric("telemetry_basis", basis="consumers")[120] == 1
    assert lines.metric("queue_messages", state="visible")[120] == visible
    fired = lines.signals("SlowConsumer", "firing", part="prefetch")
    assert [one["evidence"]["summary"].split(" slow: ")[1].split(";")[0] for one in fired] == (
        [f"holds 10 of 10 messages it may while {visible} wait"] if fires else []
    )


@pytest.mark.simulation
def test_batch_retry_storm(tmp_path: Path) -> None:
    """Batches of ten fail because of one bad message each: nine good ones of each are redelivered."""
    events = []
    for n in range(6):
        at = 20.0 * n
        for m in range(10):
            events.append(
                ev("received", at, message_id=f"m{m}", receive_count=n + 1, batch_id=f"b{n}", system="cloudflare_queues")
            )
        events.append(
            ev(
                "batch",
                at + 1,
                batch_id=f"b{n}",
                attributes={"size": 10, "failed": 1, "acked": 0, "retried": 10},
                system="cloudflare_queues",
            )
        )
    lines = replayed([*events, ev("heartbeat", 800, consumer="x")], tmp_path)
    (fired,) = lines.signals("BatchRetryStorm", "firing")
    assert fired["evidence"]["redeliveries_from_failed_batches"] >= 10
    assert lines.signals("BatchRetryStorm", "resolved")


@pytest.mark.parametrize("other", [{"queue": "other"}, {"scope": "other"}, {"system": "aws_sqs"}])
def test_a_batch_of_the_same_id_in_another_queue_did_not_fail(tmp_path: Path, other: dict[str, str]) -> None:
    """Batch ids are unique within their queue: a retry storm of one queue says nothing of another that uses the same ids."""
    events = []
    for queue, failed in (({"system": "cloudflare_queues"}, 1), ({"system": "cloudflare_queues", **other}, 0)):
        for n in range(5):
            for turn in (1, 2):
                events.append(ev("received", 10 * turn, message_id=f"m{n}", receive_count=turn, batch_id=f"b{turn}", **queue))
            events.append(ev("released", 11, message_id=f"m{n}", **queue))
        events.append(ev("batch", 11, batch_id="b1", attributes={"size": 5, "failed": failed, "retried": 5}, **queue))
    fired = replayed(events, tmp_path).signals("BatchRetryStorm", "firing")
    assert [(x["system"], x["scope"], x["queue"]) for x in fired] == [("cloudflare_queues", "", "q")]


@pytest.mark.simulation
@pytest.mark.parametrize(("in_flight", "fires"), [(29, False), (30, True)])
def test_noisy_group(tmp_path: Path, in_flight: int, fires: bool) -> None:
    """A fair queue's group with more than 10 % of what is in flight and at least 30 messages."""
    events = [ev("queue_state", 0, attributes={"visibility_timeout_s": 300})]
    for n in range(in_flight + 10):
        about = {"message_id": f"m{n}", "group": "loud"}
        events.append(ev("sent", n / 100, **about))
        if n < in_flight:
            events.append(ev("received", 1 + n / 100, receive_count=1, **about))
    events.append(ev("heartbeat", 60, consumer="x"))
    for others in ([], [ev("sent", 2, message_id="x", group="calm")]):
        lines = replayed([*events, *others], tmp_path)
        assert [x["group"] for x in lines.signals("NoisyGroup", "firing")] == (["loud"] if fires else [])


def test_telemetry_stale(tmp_path: Path) -> None:
    """A collector is silent for two minutes, not a second earlier; the signal ends with its next event."""
    events = [ev("heartbeat", 30 * n, consumer="sqs-1", queue="") for n in range(5)] + [
        ev("heartbeat", 300, consumer="sqs-1", queue="")
    ]
    lines = replayed(events, tmp_path)
    assert lines.times("TelemetryStale", "firing", consumer="sqs-1") == [240]
    assert lines.times("TelemetryStale", "resolved", consumer="sqs-1") == [300]


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("tracked", "counted", "fires"), [(89, 100, True), (90, 100, False), (110, 100, False), (111, 100, True)]
)
def test_telemetry_partial_and_coverage(tmp_path: Path, tracked: int, counted: int, fires: bool) -> None:
    """Outside 90 to 110 % of the broker's own count for ten minutes."""
    events = [ev("sent", n / 100, message_id=f"m{n}") for n in range(tracked)]
    states = [ev("queue_state", 5 + 60 * n, attributes={"visible": counted, "in_flight": 0, "delayed": 0}) for n in range(13)]
    lines = replayed([*events, *states], tmp_path)
    assert bool(lines.signals("TelemetryPartial", "firing")) is fires
    assert lines.metric("telemetry_coverage_ratio", queue="q")[600] == tracked / counted
    if fires:
        assert 605 <= lines.times("TelemetryPartial", "firing")[0] <= 607


LINT = [
    ("redrive_type_mismatch", {"kind": "standard", "dead_letter_queue": "d.fifo"}, {"kind": "fifo"}),
    ("dead_letter_retention", {"retention_s": 4 * DAY, "dead_letter_queue": "d"}, {"retention_s": 4 * DAY}),
    ("single_receive", {"max_receive_count": 1, "dead_letter_queue": "d"}, {"retention_s": 14 * DAY}),
    ("no_dead_letter_queue", {"kind": "standard", "dead_letter_queue": None}, {}),
    ("allow_policy", {"dead_letter_queue": "d"}, {"redrive_allow_policy": {"permission": "denyAll"}}),
    ("allow_policy", {"dead_letter_queue": "d"}, {"redrive_allow_policy": {"permission": "byQueue", "sources": ["other"]}}),
    ("allow_policy", {"dead_letter_queue": "d"}, {"redrive_allow_policy": '{"redrivePermission": "denyAll"}'}),
    ("backoff_beyond_cap", {"retry_delay_s": 50_000, "dead_letter_queue": "d"}, {}),
]


@pytest.mark.parametrize("policy", ["", "{", "[" * 20_000, "7"], ids=["empty", "broken", "deeply nested", "a number"])
def test_a_policy_that_cannot_be_read_is_none(tmp_path: Path, policy: str) -> None:
    """It stops nothing, and accuses nobody."""
    events = [
        ev("queue_state", 0, attributes={"dead_letter_queue": "d"}),
        ev("queue_state", 0, "d", attributes={"redrive_allow_policy": policy}),
        ev("heartbeat", 60, consumer="x"),
    ]
    assert not replayed(events, tmp_path).signals("QueueMisconfigured", "firing", queue="q")


@pytest.mark.parametrize("permission", ["denyAll", "allowAll"])
def test_an_exclusion_comes_before_too_long_a_list(tmp_path: Path, permission: str) -> None:
    """A queue may be a dead-letter queue and have one: that its failing messages go nowhere is the worse of the two."""
    listed = {"permission": "byQueue", "sources": [f"s{n}" for n in range(11)]}
    events = [
        ev("queue_state", 0, attributes={"dead_letter_queue": "d", "redrive_allow_policy": listed}),
        ev("queue_state", 0, "d", attributes={"redrive_allow_policy": {"permission": permission}}),
        ev("heartbeat", 60, consumer="x"),
    ]
    (fired,) = replayed(events, tmp_path).signals("QueueMisconfigured", "firing", queue="q")
    excluded = permission == "denyAll"
    assert fired["evidence"]["rule"] == "allow_policy"
    assert ("does not accept messages from q" in fired["evidence"]["summary"]) is excluded
    assert ("lists 11 source queues" in fired["evidence"]["summary"]) is not excluded


@pytest.mark.parametrize(("rule", "own", "theirs"), LINT, ids=[f"{rule}-{i}" for i, (rule, _, _) in enumerate(LINT)])
def test_misconfigured(tmp_path: Path, rule: str, own: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Each rule of the lint fires with the fix in words, and ends when the setting is corrected."""
    dead = own.get("dead_letter_queue") or "d"
    events = [
        ev("queue_state", 0, attributes=own),
        ev("queue_state", 0, dead, attributes=theirs),
        ev("heartbeat", 60, consumer="x"),
    ]
    fired = replayed(events, tmp_path).signals("QueueMisconfigured", "firing", queue="q")
    assert [x["evidence"]["rule"] for x in fired] == [rule]
    assert len(fired[0]["evidence"]["summary"]) > 40


def test_thresholds_by_pattern(tmp_path: Path) -> None:
    """A queue's own limits count for it alone."""
    settings = Settings(rules=(QueueRule("b*", {"poison_receives": 2}),))
    events = []
    for queue in ("a", "b"):
        events += [ev("received", 10 + 40 * n, queue, message_id="m", receive_count=n + 1) for n in range(2)]
    lines: Lines = replayed(events, tmp_path, settings=settings)
    assert [x["queue"] for x in lines.signals("PoisonMessage", "firing")] == ["b"]


@pytest.mark.simulation
def test_queue_purged(tmp_path: Path) -> None:
    """Messages that nobody had processed are counted, in any order of the events; it is info and ends after five quiet minutes."""
    events = [ev("sent", n, message_id=f"m{n}") for n in range(20)]
    events += [ev("received", 30, message_id="m0"), ev("deleted", 31, message_id="m0"), ev("purged", 60)]
    events += [ev("purged", 65), ev("sent", 70, message_id="later"), ev("heartbeat", 500, consumer="x")]
    lines = replayed([*events, *events[5:9]], tmp_path)
    (fired,) = lines.signals("QueuePurged", "firing")
    assert (fired["severity"], fired["queue"], fired["evidence"]["purged"]) == ("info", "q", 19)
    assert fired["evidence"]["basis"] == "messages"
    assert fired["evidence"]["summary"].startswith("A purge removed 19 messages from q that nobody had processed")
    assert (lines.times("QueuePurged", "firing"), lines.times("QueuePurged", "resolved")) == ([60], [360])
    assert lines.metric("signals", signal="QueuePurged", severity="info")[120] == 1
    assert lines.metric("queue_messages", queue="q", state="visible")[480] == 1


@pytest.mark.simulation
def test_a_purge_of_an_empty_queue_raises_nothing(tmp_path: Path) -> None:
    """All was processed before."""
    events = [ev(kind, at, message_id="m") for kind, at in (("sent", 0), ("received", 1), ("deleted", 2))]
    lines = replayed([*events, ev("purged", 60), ev("heartbeat", 500, consumer="x")], tmp_path)
    assert not lines.signals("QueuePurged")
