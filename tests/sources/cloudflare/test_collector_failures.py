"""A failing queue or response does not affect the others, and requests stay within their limits."""

from __future__ import annotations

import logging

import pytest

from tests.sources.cloudflare.api_stub import ACCOUNT, Stub, answering
from tests.sources.cloudflare.driven import WORKER, running


def test_a_failing_queue_does_not_affect_the_others(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """It is polled less and less often, logged once, and reported again as soon as it answers."""
    bad, good = stub.add("bad", consumer=WORKER, backlog=1), stub.add("good", consumer=WORKER, backlog=2)
    stub.standing[f"{bad.id}/metrics"] = answering(500, "<html>no</html>")
    with caplog.at_level(logging.WARNING), running(stub, poll_interval_s=0.05) as run:
        run.until(lambda: len(stub.calls(f"{good.id}/metrics")) >= 20)
        assert run.of("queue_state", "bad") == []
        assert len(stub.calls(f"{bad.id}/metrics")) < len(stub.calls(f"{good.id}/metrics")) / 2
        del stub.standing[f"{bad.id}/metrics"]
        run.until(lambda: run.of("queue_state", "bad"))
    reported = [record.getMessage() for record in caplog.records if "500" in record.getMessage()]
    assert len(reported) == 1, reported
    assert reported[0].startswith("Cloudflare: queue bad: metrics")


def test_a_queue_that_the_token_may_not_read_does_not_delay_the_others(stub: Stub) -> None:
    """A refusal pauses all requests only if it concerns all queues: then it is the token that is wrong."""
    bad, good = stub.add("bad", consumer=WORKER), stub.add("good", consumer=WORKER)
    stub.standing[f"{bad.id}/metrics"] = answering(403, "{}")
    with running(stub, discovery_interval_s=300, poll_interval_s=1, sample={"size": 0}) as run:
        run.until(lambda: stub.calls(f"{bad.id}/metrics") and stub.calls(f"{good.id}/metrics"))
        before = len(stub.calls(f"{good.id}/metrics"))
        run.go_on(20)
        assert len(stub.calls(f"{good.id}/metrics")) - before >= 18
        stub.standing[f"{good.id}/metrics"] = answering(403, "{}")
        asked = len(stub.calls(f"{good.id}/metrics"))
        run.until(lambda: len(stub.calls(f"{good.id}/metrics")) > asked)
        before = len(stub.requests)
        run.go_on(25)
        assert len(stub.requests) == before


def test_the_problems_of_vanished_queues_are_forgotten(stub: Stub) -> None:
    """An account may have a new queue for each job: the collector must not grow with every one that ever failed."""
    bad = stub.add("bad", consumer=WORKER, backlog=1)
    stub.standing[f"{bad.id}/metrics"] = answering(500, "<html>no</html>")
    stub.add("good", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.problems == 1)
        stub.queues.remove(bad)
        run.until(lambda: run.problems == 0)


def test_a_queue_is_watched_where_no_sample_can_be_taken(stub: Stub) -> None:
    """The call was renamed once: where neither name exists, the queue and its backlog still do."""
    stub.add("orders", consumer=WORKER, backlog=5)
    for call in ("/peek", "/preview"):
        stub.standing[call] = answering(404, "{}")
    with running(stub, discovery_interval_s=300) as run:
        run.until(lambda: stub.calls("/preview"))
        reported = len(run.of("queue_state", "orders"))
        run.until(lambda: len(run.of("queue_state", "orders")) >= reported + 10)


def test_known_queues_are_polled_when_the_list_fails(stub: Stub) -> None:
    """A failing listing does not stop the polling of queues that are already known."""
    stub.add("orders", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.of("queue_state", "orders"))
        stub.standing["/queues"] = answering(502, "<html>")
        reported = len(run.of("queue_state", "orders"))
        run.until(lambda: len(run.of("queue_state", "orders")) >= reported + 10)


def test_heartbeats_stop_when_the_api_is_silent(stub: Stub) -> None:
    """A collector that has no answer for a minute must look like one that fell silent."""
    stub.add("orders", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.of("heartbeat"))
        assert run.of("heartbeat")[0]["consumer"] == f"cloudflare:{ACCOUNT}"
        for end in ("/metrics", "/queues", "/peek"):
            stub.standing[end] = answering(503, "")
        before = len(run.of("heartbeat"))
        run.go_on(61)
        reported = len(run.of("heartbeat"))
        assert reported > before
        run.go_on(30)
        assert len(run.of("heartbeat")) == reported
        stub.standing.clear()
        run.until(lambda: len(run.of("heartbeat")) > reported, within_s=600)


def test_heartbeats_stop_when_only_the_list_answers(stub: Stub) -> None:
    """Nothing is known of any queue then; with a heartbeat after each list, the alert would come and go."""
    stub.add("orders", consumer=WORKER)
    with running(stub, discovery_interval_s=300, poll_interval_s=30, heartbeat_interval_s=10) as run:
        run.until(lambda: run.of("heartbeat"))
        stub.standing["/metrics"] = answering(503, "")
        run.go_on(90)
        reported = len(run.of("heartbeat"))
        run.go_on(700)
        assert len(stub.calls("/queues")) >= 3
        assert len(run.of("heartbeat")) == reported
        stub.standing.clear()
        run.until(lambda: len(run.of("heartbeat")) > reported, within_s=700)


def test_no_heartbeat_before_the_api_answered(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong token shows at once, and the log says what to do."""
    monkeypatch.setenv("QUEUEWATCH_CLOUDFLARE_TOKEN", "wrong")
    with caplog.at_level(logging.WARNING), running(stub) as run:
        run.until(lambda: stub.requests)
        run.go_on(20)
    assert run.events == []
    assert "Authentication error" in caplog.text
    assert "; what is known already is still watched. Create an API token with Queues Edit" in caplog.text
    assert len(stub.requests) == 1, "a token that is refused is not tried again at once"


def test_too_many_requests_stop_all_of_them(stub: Stub) -> None:
    """All requests stop for as long as the API asks, then resume."""
    stub.add("orders", consumer=WORKER)
    stub.add("mail", consumer=WORKER)
    with running(stub) as run:
        run.until(lambda: run.of("queue_state", "mail") and run.of("queue_state", "orders"))
        stub.faults["/metrics"].append(answering(429, "{}", retry_after="1"))
        run.until(lambda: not stub.faults["/metrics"])
        asked = len(stub.requests)
        run.go_on(0.9)
        assert len(stub.requests) == asked
        reported = len(run.of("queue_state", "orders"))
        run.until(lambda: len(run.of("queue_state", "orders")) > reported)


def test_requests_stay_within_the_budget(stub: Stub) -> None:
    """With many queues and a small budget, polls are less frequent; the number of requests stays the same."""
    for i in range(40):
        stub.add(f"q{i}", consumer=WORKER)
    with running(stub, requests_per_5min=300) as run:
        run.until(lambda: len(stub.requests) >= 30)
        before = len(stub.requests)
        run.go_on(20)
        assert 19 <= len(stub.requests) - before <= 21, "one request a second"


def test_what_the_configuration_names_and_the_account_lacks_is_logged_once(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    """A mistyped name would otherwise watch and drain nothing, with heartbeats as usual."""
    with caplog.at_level(logging.WARNING), running(stub, queues=["odrers"], drain={"queue": "telemtry"}) as run:
        stub.add("orders", consumer=WORKER)
        run.until(lambda: len(stub.calls("/queues")) >= 3)
        assert [record.getMessage() for record in caplog.records] == [
            "Cloudflare: no queue of the account fits queues ['odrers']: nothing is watched",
            "Cloudflare: drain.queue 'telemtry' is not in the account: nothing is drained",
        ]
        stub.add("odrers", consumer=WORKER)
        run.until(lambda: run.of("queue_state", "odrers"))
