"""Any name can be explained: its state, which signals fire about it, and what to do."""

from __future__ import annotations

import difflib
import json
from dataclasses import replace
from typing import Any

import pytest

from sinks.explain.explanation import Explanation, explain
from sinks.explain.json_form import to_dict
from sinks.explain.text import to_text
from sinks.http.search import find
from sinks.lines import to_json
from streaming.judge.snapshot import Attempt, ConsumerView, MessageView, QueueStatus, Snapshot
from tests.judge.driving import in_steps, judged
from tests.judge.test_shards import inferred_in_fifo
from tests.sinks.fakes import HOSTILE_NAMES, NOW_MS, finding, hostile_snapshot, queue_view, shop_snapshot

SHOP = shop_snapshot()
POISON = "7f3a1c52-90de-4b7b-8a11-3f2f4f0a9c01"
HEAD = "18849561234907385856"
HELD = "5a8e2b10-7777-4c4c-9d9d-0f0f0f0f0f0f"


def about(what: str, snapshot: Snapshot = SHOP) -> Explanation:
    return explain(snapshot, what, NOW_MS)


def test_a_firing_queue_is_explained_worst_signal_first() -> None:
    """Each signal has its sentence, evidence, meaning, remedy and runbook link."""
    (subject,) = explain(SHOP, "orders", NOW_MS, runbook_base_url="https://run.book").subjects
    assert [(r.finding.severity, r.firing_s) for r in subject.reasons] == [
        ("warning", 79.0),
        ("warning", 31.0),
    ]
    assert subject.reasons[0].advice.to_do
    assert subject.reasons[0].advice.runbook_url == "https://run.book#alert-name-queuewatchpoisonmessage"
    assert subject.sentence == (
        "Queue orders is lagging: its backlog gets older while consumers work: 184 messages visible; "
        "12 in flight; 3 delayed; the oldest 2 min 41 s old; one was received 5 times; the last was finished "
        "0.9 s ago; at this rate it will be empty in 1 min 14 s."
    )


def test_an_empty_queue_has_no_oldest_message() -> None:
    """The counts are the newest word: the age is that of a message that has just come or gone. Unknown counts are not zero."""
    empty = queue_view("orders", visible=0, in_flight=0, delayed=0, oldest_ms={"all": NOW_MS - 2_300})
    assert "the oldest" not in about("orders", Snapshot(NOW_MS, (empty,), (), {})).subjects[0].sentence
    for some in (replace(empty, delayed=1), replace(empty, in_flight=None), replace(empty, visible=1)):
        assert "the oldest 2.3 s old" in about("orders", Snapshot(NOW_MS, (some,), (), {})).subjects[0].sentence


@pytest.mark.parametrize(
    ("status", "visible", "fires", "words"),
    [
        ("ok", 3, False, "holds dead letters"),
        ("ok", 3, True, "holds dead letters"),
        ("ok", 0, False, "is fine"),
        ("ok", 0, True, "is OK as a whole"),
        ("ok", None, True, "is OK as a whole"),
        ("stale", 3, True, "is stale"),
        ("lagging", 3, False, "is lagging"),
    ],
)
def test_a_dead_letter_queue_is_described_by_its_status_and_its_signals(
    status: QueueStatus, visible: int | None, fires: bool, words: str
) -> None:
    """That it holds dead letters does not hide that nothing reports on it, and it is not fine while its signal fires."""
    dead = queue_view("orders-dlq", status=status, visible=visible, is_dead_letter_queue=True)
    firing = (finding("DeadLetterArrived", "orders-dlq", "warning", NOW_MS, "It arrived."),) if fires else ()
    (subject,) = about("orders-dlq", Snapshot(NOW_MS, (dead,), firing, {})).subjects
    assert subject.sentence.startswith(f"Dead-letter queue orders-dlq {words}")


def test_a_message_is_explained_by_its_id() -> None:
    """The explanation says where the message is, its age and receive count, and lists only the signals about it."""
    (subject,) = about(POISON).subjects
    assert (subject.kind, len(subject.reasons)) == ("message", 1)
    assert subject.sentence == (
        f"Message {POISON} of orders is in flight at orders-worker-2; it was sent 2 min 41 s ago; "
        "received 5 times; its window ends in 21 s."
    )


def test_a_message_whose_deletion_came_too_late_is_said_to() -> None:
    """The work is done each time, so the message is not what is wrong."""
    late = MessageView("m", "visible", NOW_MS - 60_000, 3, ("poison",), refused_settlements=2)
    (subject,) = about("m", Snapshot(NOW_MS, (queue_view("orders", messages=(late,)),), (), {})).subjects
    assert "received 3 times; its deletion was refused 2 times because its window had ended" in subject.sentence


def test_the_age_of_a_message_whose_send_time_is_not_reported_is_a_lower_bound() -> None:
    """It counts from the message's first event."""
    seen = MessageView("m", "visible", NOW_MS - 60_000, 3, ("poison",), sent_known=False)
    (subject,) = about("m", Snapshot(NOW_MS, (queue_view("orders", messages=(seen,)),), (), {})).subjects
    assert "it was sent at least 1 min ago" in subject.sentence


def test_a_dead_letter_that_nobody_received_here_is_not_said_to_be_never_received() -> None:
    """It was received in its source queue; a message in its own queue is said to be never received."""
    arrived = MessageView("m", "visible", NOW_MS - 60_000, 0, ("dead_letter",), arrived_at_ms=NOW_MS - 1_000)
    fresh = replace(arrived, message_id="n", why=("oldest",), arrived_at_ms=None)
    dead = queue_view("orders-dlq", is_dead_letter_queue=True, messages=(arrived,))
    snapshot = Snapshot(NOW_MS, (dead, queue_view("orders", messages=(fresh,))), (), {})
    assert [about(name, snapshot).subjects[0].sentence for name in ("m", "n")] == [
        "Message m of orders-dlq waits to be received; it was sent 1 min ago; it arrived in this dead-letter queue 1 s ago.",
        "Message n of orders waits to be received; it was sent 1 min ago; never received.",
    ]


def test_a_message_that_was_extended_is_not_said_to_be_never_received() -> None:
    """Its receive is not reported."""
    extended = Attempt(NOW_MS - 10_000, "extended", 0, NOW_MS + 20_000, None)
    held = MessageView("m", "in_flight", NOW_MS - 60_000, 0, ("held",), invisible_until_ms=NOW_MS + 20_000, attempts=(extended,))
    (subject,) = about("m", Snapshot(NOW_MS, (queue_view("orders", messages=(held,)),), (), {})).subjects
    assert subject.sentence == "Message m of orders is in flight; it was sent 1 min ago; its window ends in 20 s."


def test_a_head_is_blamed_for_its_group() -> None:
    """A signal about a group is also shown when the group's head is asked for by id."""
    (subject,) = about(HEAD).subjects
    assert [r.finding.key.signal for r in subject.reasons] == ["GroupStuck"]
    assert subject.sentence.endswith("it belongs to group customer-4711 and is its head.")


@pytest.mark.parametrize(
    ("what", "kind", "signal"),
    [
        ("customer-4711", "group", "GroupStuck"),
        ("ID:app-3-4711:1:1", "consumer", "SlowConsumer"),
        ("aws_sqs/123456789012/eu-west-1/invoice-mail", "queue", "QueueStalled"),
    ],
)
def test_groups_consumers_and_full_names_are_found(what: str, kind: str, signal: str) -> None:
    """Every name that the page shows can be looked up."""
    (subject,) = about(what).subjects
    assert (subject.kind, [r.finding.key.signal for r in subject.reasons]) == (kind, [signal])


def test_a_consumer_is_blamed_for_the_messages_that_it_holds_too_long() -> None:
    """The signal is about the message, but whoever asks about its consumer is shown it; other consumers of the queue are not."""
    (subject,) = about("video-encoder-7").subjects
    assert [(r.finding.key.signal, r.finding.key.message_id) for r in subject.reasons] == [("MessageHeldTooLong", HELD)]
    assert f"Message {HELD} has been held by video-encoder-7" in to_text(about("video-encoder-7"))
    (other,) = about("video-encoder-3").subjects
    assert other.reasons == ()


@pytest.mark.parametrize(("name", "is_blamed"), [("w1", True), ("w, 1", True), ("1", False), ("w", False), ("w10", False)])
def test_a_consumer_that_a_signal_names_as_its_cause_is_shown_it(name: str, is_blamed: bool) -> None:
    """Names are compared as they are: a comma in one does not make two of it."""
    found = replace(finding("QueueFailing", "q", "critical", NOW_MS, "Something is wrong."), blamed=("w0", "w1", "w, 1"))
    consumers = (ConsumerView(consumer=name, held=1, oldest_held_since_ms=NOW_MS - 5_000, oldest_message_id="m"),)
    (subject,) = about(name, Snapshot(NOW_MS, (queue_view("q", consumers=consumers),), (found,), {})).subjects
    assert [r.finding.key.signal for r in subject.reasons] == (["QueueFailing"] if is_blamed else [])


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        (0, "Consumer w3 of q holds no message."),
        (2, "Consumer w3 of q is not among the consumers with the longest holds."),
    ],
)
def test_a_consumer_that_holds_nothing_is_found_by_the_signal_that_names_it(others: int, sentence: str) -> None:
    """It fell silent: no list of consumers has it. One that no signal names is not known."""
    found = finding("QueueLagging", "q", "warning", NOW_MS, "It falls behind.")
    found = replace(found, blamed=("w1", "w3"))
    held = (ConsumerView(consumer="w2", held=1, oldest_held_since_ms=NOW_MS - 5_000, oldest_message_id="m"),)
    queues = (queue_view("q", consumers=held, other_consumers=others), queue_view("other"))
    (subject,) = about("w3", Snapshot(NOW_MS, queues, (found,), {})).subjects
    assert (subject.kind, subject.sentence) == ("consumer", sentence)
    assert [r.finding.key.signal for r in subject.reasons] == ["QueueLagging"]
    assert about("w4", Snapshot(NOW_MS, queues, (found,), {})).subjects == ()


def test_a_consumer_is_not_blamed_for_a_message_that_it_only_received_last() -> None:
    """The evidence of other signals names a consumer that may have done nothing wrong."""
    (subject,) = about("orders-worker-2").subjects
    assert subject.reasons == ()


def test_one_name_in_two_regions_is_explained_twice() -> None:
    """A bare name finds the queue in every scope; a full name finds one."""
    twice = (queue_view("orders", scope="eu"), queue_view("orders", scope="us", visible=4))
    snapshot = Snapshot(NOW_MS, twice, (), {})
    assert [s.queue.scope for s in about("orders", snapshot).subjects] == ["eu", "us"]
    assert [s.queue.scope for s in about("aws_sqs/us/orders", snapshot).subjects] == ["us"]


def test_many_queues_of_one_name_are_truncated_and_counted() -> None:
    """A thousand tenants with the same queue name must not fill the terminal."""
    snapshot = Snapshot(NOW_MS, tuple(queue_view("q", scope=str(i)) for i in range(25)), (), {})
    explanation = about("q", snapshot)
    assert (len(explanation.subjects), explanation.more) == (10, 15)
    assert "15 more have this name" in to_text(explanation)


def test_an_unknown_name_says_what_that_means_and_what_is_near() -> None:
    """A message that is not listed is no error; the text says what that can mean and lists similar names."""
    explanation = about("ordrs")
    assert not explanation.firing
    assert "Similar: orders" in to_text(explanation)
    assert "was settled, is healthy, or was never seen" in to_text(explanation)


def test_similar_names_are_listed_once_and_found_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queues of many regions have the same names; and comparing with each of ten thousand long names would take seconds."""
    names = [f"tenant-{n}-invoices-to-be-sent" for n in range(1_000)] + ["payments-to-be-settled"]
    snapshot = Snapshot(NOW_MS, tuple(queue_view(name, scope=scope) for name in names for scope in ("eu", "us")), (), {})
    compared: list[int] = []
    original = difflib.get_close_matches

    def counted(word: str, possibilities: list[str], **options: Any) -> list[str]:
        compared.append(len(possibilities))
        return original(word, possibilities, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    assert "Similar: payments-to-be-settled." in to_text(about("payment-to-be-setled", snapshot))
    assert compared == [100]


def test_a_collector_that_fell_silent_is_explained() -> None:
    """TelemetryStale belongs to no queue; 'nothing is called so' would send the reader away from the cause."""
    text = to_text(about("sqs-us"))
    assert text.startswith("sqs-us is a collector: its last event came 3 min 10 s ago. FIRING TelemetryStale: Collector sqs-us")
    assert "Check the collector's log" in text
    assert to_text(about("sqs-eu")) == "sqs-eu is a collector: its last event came 4 s ago. No signal fires for it.\n"


def test_text_contains_no_terminal_control_characters() -> None:
    """External names may contain escape sequences, direction marks and newlines."""
    for name in (*HOSTILE_NAMES, "\x1b[31mred", "\x07bell"):
        text = to_text(about(name, hostile_snapshot()))
        assert all(c.isprintable() or c == "\n" for c in text)
        assert text.encode()


def test_json_holds_the_same_explanation() -> None:
    """The API and `--json` return plain JSON values."""
    found = json.loads(to_json(to_dict(about("payments.fifo"))))
    assert found["firing"] is True
    (subject,) = found["subjects"]
    assert subject["firing"][0]["evidence"]["head_message_id"] == HEAD
    assert subject["firing"][0]["to_do"]
    near = subject["not_firing"]
    assert {miss["signal"] for miss in near} == {"MessageHeldTooLong", "QueueLagging", "TelemetryPartial"}
    assert [miss["nearness"] for miss in near] == sorted((miss["nearness"] for miss in near), reverse=True)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_dead_letter_that_was_concluded_in_a_fifo_queue_is_found_and_explained(shards: int) -> None:
    """Long after it was announced, it is a message of the dead-letter queue."""
    snapshot = judged(in_steps(inferred_in_fifo(3), 60, 1_800), shards=shards).snapshots[-1]
    assert ("message", "d.fifo") in {(match.kind, match.queue.queue) for match in find(snapshot, "bad1")[0]}
    (subject,) = explain(snapshot, "bad1", snapshot.at_ms).subjects
    assert (subject.kind, subject.queue.queue) == ("message", "d.fifo")
    assert "d.fifo" in subject.sentence
    assert "inferred" in subject.sentence
