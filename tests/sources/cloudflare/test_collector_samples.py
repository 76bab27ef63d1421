"""What the collector reports of the messages it reads ahead, and what it leaves alone."""

from __future__ import annotations

from tests.sources.cloudflare.api_stub import Stub, StubMessage, answering
from tests.sources.cloudflare.driven import SENT_MS, WORKER, running


def test_a_sampled_message_is_tracked_only_where_its_end_will_be_known(stub: Stub) -> None:
    """Only `instrumented` queues and dead-letter queues without a consumer get a `sent` event per message, once and dated."""
    for name, consumer in (("orders", WORKER), ("mail", WORKER), ("orders-dlq", None)):
        stub.add(name, consumer=consumer, messages=[StubMessage(f"{name}-0", SENT_MS, 2)])
    with running(stub, sample={"interval_s": 0.05, "instrumented": ["mail"]}) as run:
        run.until(lambda: len(run.of("queue_state", "orders")) >= 10 and run.of("sent", "mail") and run.of("sent", "orders-dlq"))
    assert sorted(e["message_id"] for e in run.of("sent")) == ["mail-0", "orders-dlq-0"]
    sent = run.of("sent", "mail")[0]
    assert (sent["sent_at"], sent["receive_count"]) == (SENT_MS, 2)
    assert sent["at"] > SENT_MS, "the time it was seen, or a long wait would make the event late"
    assert run.of("received") == []


def test_a_sample_of_a_queue_that_emptied_is_withdrawn(stub: Stub) -> None:
    """Suspects that are gone must not stay on the page."""
    queue = stub.add("orders", consumer=WORKER, messages=[StubMessage("m0", SENT_MS, 4)])
    with running(stub) as run:
        run.until(lambda: run.attributes("orders").get("sample_suspects"))
        queue.messages.clear()
        run.until(lambda: run.attributes("orders").get("sample_size") == 0)
        assert run.attributes("orders")["sample_suspects"] == []
        looks = len(stub.calls("/peek"))
        run.until(lambda: len(run.of("queue_state", "orders")) >= 20)
        assert len(stub.calls("/peek")) == looks, "an empty queue is not looked at"


def test_a_token_that_may_not_see_messages_still_sees_queues(stub: Stub) -> None:
    """A refused sample does not delay the queue's other requests."""
    stub.add("orders", consumer=WORKER, backlog=3)
    for end in ("/peek", "/preview"):
        stub.standing[end] = answering(403, "{}")
    with running(stub) as run:
        run.until(lambda: len(run.of("queue_state", "orders")) >= 10)
        assert len(stub.calls("/peek")) < 6


def test_without_sampling_no_message_is_read(stub: Stub) -> None:
    """`size: 0` turns sampling off."""
    stub.add("orders", consumer=WORKER, messages=[StubMessage("m0", SENT_MS, 4)])
    with running(stub, sample={"size": 0}) as run:
        run.until(lambda: len(run.of("queue_state", "orders")) >= 5)
    assert stub.calls("/peek") + stub.calls("/preview") == []
