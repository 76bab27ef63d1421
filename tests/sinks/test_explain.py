"""Every firing signal with its reason and remedy, every quiet one with its distance to the limit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sinks.explain import Explanation, explain, to_dict, to_text
from sinks.lines import to_json
from sinks.words import duration
from streaming.core.thresholds import Thresholds
from streaming.judge.snapshot import QueueView, Snapshot
from tests.sinks.fakes import HOSTILE_NAMES, NOW_MS, hostile_snapshot, queue_view, shop_snapshot

SHOP = shop_snapshot()
POISON = "7f3a1c52-90de-4b7b-8a11-3f2f4f0a9c01"
HEAD = "18849561234907385856"


def about(what: str, snapshot: Snapshot = SHOP) -> Explanation:
    return explain(snapshot, what, NOW_MS)


def of_queue(queue: QueueView, limits: Thresholds | None = None) -> dict[str, str]:
    snapshot = Snapshot(NOW_MS, (queue,), (), {})
    explanation = explain(snapshot, queue.queue, NOW_MS, thresholds=lambda _: limits or Thresholds())
    return {near.signal: near.sentence for near in explanation.subjects[0].near_misses}


def test_a_firing_queue_is_explained_worst_signal_first() -> None:
    """Sentence, evidence, meaning, remedy and runbook of each."""
    (subject,) = explain(SHOP, "orders", NOW_MS, runbook_base_url="https://run.book").subjects
    assert [(r.finding.severity, r.firing_s) for r in subject.reasons] == [
        ("critical", 44.0),
        ("warning", 31.0),
    ]
    assert subject.reasons[0].advice.to_do
    assert subject.reasons[0].advice.runbook_url == "https://run.book#alert-name-queuewatchpoisonmessage"
    assert subject.sentence == (
        "Queue orders is lagging: its backlog grows older while consumers work: 184 messages visible; "
        "12 in flight; 3 delayed; the oldest 2 min 41 s old; one was received 5 times; the last was finished "
        "0.9 s ago; at this rate it is empty in 1 min 14 s."
    )


def test_a_message_is_explained_by_its_id() -> None:
    """Where it is, how old, how often received, and only the signals about it."""
    (subject,) = about(POISON).subjects
    assert (subject.kind, len(subject.reasons)) == ("message", 1)
    assert subject.sentence == (
        f"Message {POISON} of orders is in flight at orders-worker-2; it was sent 2 min 41 s ago; "
        "received 5 times; its window ends in 21 s."
    )


def test_a_head_is_blamed_for_its_group() -> None:
    """The signal is about the group; whoever asks for the head's id wants to know of it."""
    (subject,) = about(HEAD).subjects
    assert [r.finding.key.signal for r in subject.reasons] == ["GroupStuck"]
    assert subject.sentence.endswith("it belongs to group customer-4711 and is its head.")


@pytest.mark.parametrize(
    ("what", "kind", "signal"),
    [
        ("customer-4711", "group", "GroupStuck"),
        ("video-encoder-7", "consumer", "MessageHeldTooLong"),
        ("aws_sqs/123456789012/eu-west-1/invoice-mail", "queue", "QueueStalled"),
    ],
)
def test_groups_consumers_and_full_names_are_found(what: str, kind: str, signal: str) -> None:
    """Everything the page shows by name can be asked for by it."""
    (subject,) = about(what).subjects
    assert (subject.kind, [r.finding.key.signal for r in subject.reasons]) == (kind, [signal])


def test_one_name_in_two_regions_is_explained_twice() -> None:
    """Nobody has to know the scope; who does can ask for it."""
    twice = (queue_view("orders", scope="eu"), queue_view("orders", scope="us", visible=4))
    snapshot = Snapshot(NOW_MS, twice, (), {})
    assert [s.queue.scope for s in about("orders", snapshot).subjects] == ["eu", "us"]
    assert [s.queue.scope for s in about("aws_sqs/us/orders", snapshot).subjects] == ["us"]


def test_many_of_one_name_are_cut_and_counted() -> None:
    """A thousand tenants with the same queue name do not fill the terminal."""
    snapshot = Snapshot(NOW_MS, tuple(queue_view("q", scope=str(i)) for i in range(25)), (), {})
    explanation = about("q", snapshot)
    assert (len(explanation.subjects), explanation.more) == (10, 15)
    assert "15 more bear this name" in to_text(explanation)


def test_an_unknown_name_says_what_that_means_and_what_is_near() -> None:
    """A message that is not listed is not an error."""
    explanation = about("ordrs")
    assert not explanation.firing
    assert "Similar: orders" in to_text(explanation)
    assert "was settled, is healthy, or was never seen" in to_text(explanation)


def test_a_healthy_queue_shows_how_far_from_firing_it_is() -> None:
    """Number against limit, for each signal the numbers are known of."""
    near = of_queue(replace(SHOP.queues[7], consumers=SHOP.queues[0].consumers), Thresholds(stalled_s=90))
    assert near == {
        "PoisonMessage": "the highest receive count is 1; it fires at 3.",
        "MessageHeldTooLong": "the longest hold is 9 s; it fires after 15 min without a break.",
        "QueueStalled": ("8 messages visible, the last was finished 0.9 s ago; it fires after 1 min 30 s without one."),
        "TelemetryPartial": ("100.0% of the broker's own count is tracked; it fires below 90% or above 110% for 10 min."),
    }


@pytest.mark.parametrize(
    ("queue", "signal", "sentence", "why"),
    [
        (
            queue_view("q", receive_count_max=1, broker={"max_receive_count": 2}),
            "PoisonMessage",
            "the highest receive count is 1; it fires at 2.",
            "few receives allowed: the limit is lower",
        ),
        (
            queue_view("q", receive_count_max=1, broker={"max_receive_count": 1}),
            "PoisonMessage",
            "the highest receive count is 1; it fires at 2.",
            "never on a first delivery",
        ),
        (
            queue_view("q", is_dead_letter_queue=True, dead_letter_expires_at_ms=NOW_MS + 7_200_000,
                       broker={"retention_s": 3_600}),
            "DeadLetterExpiring",
            "the first dead letter is lost in 2 h; it fires below 15 min.",
            "a quarter of a short retention",
        ),
        (queue_view("q"), "QueueStalled", "nothing waits to be received.", "an empty queue cannot stall"),
        (
            queue_view("q", visible=3, last_settled_at_ms=None),
            "QueueStalled",
            "3 messages visible; none was seen finished yet.",
            "nothing settled since we watch",
        ),
        (
            queue_view("q.fifo", groups={"backlog": 4, "in_flight": 0, "blocked": 0, "hidden": 0}),
            "GroupStuck",
            "none stands still of 4 groups with a backlog.",
            "groups flow",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) and " " in v and len(v) < 45 else "",
)  # fmt: skip
def test_near_misses_use_the_judges_limits(queue: QueueView, signal: str, sentence: str, why: str) -> None:
    """The same limits as the rules of the judge."""
    assert of_queue(queue)[signal] == sentence, why


def test_nothing_is_said_of_a_number_beyond_its_limit_that_does_not_fire() -> None:
    """In a dead-letter queue the receive count goes on; 'it fires at 3' beside a 6 would be a lie."""
    assert "PoisonMessage" not in of_queue(queue_view("dlq", is_dead_letter_queue=True, receive_count_max=6))


def test_text_never_carries_what_a_terminal_would_act_on() -> None:
    """Names from outside may hold escape sequences, direction marks and newlines."""
    for name in (*HOSTILE_NAMES, "\x1b[31mred", "\x07bell"):
        text = to_text(about(name, hostile_snapshot()))
        assert all(c.isprintable() or c == "\n" for c in text)
        assert text.encode()


def test_the_same_stands_in_json() -> None:
    """What the API and `--json` give, plain values only."""
    found = json.loads(to_json(to_dict(about("payments.fifo"))))
    assert found["firing"] is True
    (subject,) = found["subjects"]
    assert subject["firing"][0]["evidence"]["head_message_id"] == HEAD
    assert subject["firing"][0]["to_do"]
    assert {near["signal"] for near in subject["not_firing"]} == {
        "MessageHeldTooLong", "QueueStalled", "TelemetryPartial"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (0.0004, "1 ms"), (0.019, "19 ms"),
        (0.42, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min"), (61, "1 min 1 s"),
        (3_600, "1 h"), (3_605, "1 h"), (3_665, "1 h 1 min"), (90_000, "1 d 1 h"), (86_460, "1 d"),
        (-5, "−5 s"),
    ],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float, words: str) -> None:
    """Enough to act on, short enough to read."""
    assert duration(seconds) == words
