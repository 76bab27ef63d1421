"""The doctor examines an account once and reports harmful settings with their fixes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sources.cloudflare.collector import CloudflareCollector
from sources.cloudflare.config import CloudflareCollectorConfig
from sources.cloudflare.doctor import examine
from sources.collect.base import CollectorRefused
from sources.doctor import Examination
from tests.sources.cloudflare.api_stub import ACCOUNT, Stub, answering

DAY_S = 86_400


def consumer(dead_letter_queue: str = "dlq", **settings: Any) -> dict[str, Any]:
    """Return a Worker consumer as the API lists it."""
    reported = {"batch_size": 10, "max_retries": 3, "max_wait_time_ms": 5000, "retry_delay": 0} | settings
    return {"type": "worker", "script_name": "shop", "dead_letter_queue": dead_letter_queue, "settings": reported}


def examined(stub: Stub, **config: Any) -> Examination:
    """Examine the stub's account."""
    return examine(CloudflareCollectorConfig.model_validate({"account_id": ACCOUNT, "api_url": stub.url, **config}))


def rules(examination: Examination) -> list[tuple[str | None, str, str]]:
    """Return the queue, rule and severity of each finding."""
    return [(finding.queue, finding.rule, finding.severity) for finding in examination.findings]


def test_good_settings_have_no_findings(stub: Stub) -> None:
    """Every queue is listed as passed."""
    stub.add("orders", consumer=consumer(), settings={"message_retention_period": 4 * DAY_S})
    stub.add("dlq", settings={"message_retention_period": 14 * DAY_S})
    examination = examined(stub)
    assert (examination.passed, examination.findings) == (["dlq", "orders"], [])


@pytest.mark.parametrize(
    ("config", "summary", "fix"),
    [
        ({"queues": ["odrers*"]}, "no queue that collect.cloudflare.queues and exclude select.", "Check the patterns, and "),
        ({"exclude": ["*"]}, "no queue that collect.cloudflare.queues and exclude select.", "Check the patterns, and "),
        ({}, "The account has no queue.", "Check collect.cloudflare.account_id."),
    ],
)
def test_an_account_without_queues_is_a_finding(stub: Stub, config: dict[str, Any], summary: str, fix: str) -> None:
    """A mistyped pattern would otherwise pass as nothing to fix."""
    if config:
        stub.add("orders", consumer=consumer())
    [finding] = examined(stub, **config).findings
    assert (finding.rule, finding.severity, finding.queue) == ("no_queue", "warning", None)
    assert summary in finding.summary
    assert (finding.fix or "").startswith(fix)


def test_findings_name_their_queue(stub: Stub) -> None:
    """Each finding names its queue, with the account as scope."""
    stub.add("bad", consumer=consumer("", max_retries=0))
    stub.add("good", consumer=consumer())
    examination = examined(stub)
    assert rules(examination) == [("bad", "no_dead_letter_queue", "warning"), ("bad", "no_retries", "warning")]
    assert examination.passed == ["good"]
    assert {finding.scope for finding in examination.findings} == {ACCOUNT}


def test_a_dead_letter_queue_must_keep_messages_longer(stub: Stub) -> None:
    """Retention counts from the original send, not from the arrival in the dead-letter queue."""
    stub.add("orders", consumer=consumer(), settings={"message_retention_period": 4 * DAY_S})
    dlq = stub.add("dlq", settings={"message_retention_period": 4 * DAY_S})
    assert rules(examined(stub)) == [("orders", "dead_letter_retention", "warning")]
    dlq.settings = {"message_retention_period": 4 * DAY_S + 1}
    assert rules(examined(stub)) == []


def test_consumers_missing_from_the_list_are_requested(stub: Stub) -> None:
    """The doctor makes the same additional request as the collector."""
    queue = stub.add("orders", consumer=consumer(max_retries=0))
    entry = {**queue.as_listed(), "consumers": None, "consumers_total_count": 1}
    stub.standing["/queues"] = answering(200, json.dumps({"success": True, "errors": [], "result": [entry]}))
    assert ("orders", "no_retries", "warning") in rules(examined(stub))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (404, []),  # deleted since it was listed
        (500, [("gone", "not_examined", "critical")]),
        (403, [("gone", "not_examined", "critical")]),
        (429, [("gone", "not_examined", "critical")]),
    ],
)
def test_a_queue_that_cannot_be_read_leaves_the_others_examined(
    stub: Stub, status: int, expected: list[tuple[str, str, str]]
) -> None:
    """The doctor examines every other queue of the account."""
    queues = [stub.add("gone", consumer=consumer()), stub.add("orders", consumer=consumer(max_retries=0))]
    entries = [{**queue.as_listed(), "consumers": None, "consumers_total_count": 1} for queue in queues]
    stub.standing["/queues"] = answering(200, json.dumps({"success": True, "errors": [], "result": entries}))
    stub.standing[f"{queues[0].id}/consumers"] = answering(status, "{}", retry_after="1")
    assert rules(examined(stub)) == [*expected, ("orders", "no_retries", "warning")]


def test_a_wrangler_file_that_was_not_deployed(stub: Stub, tmp_path: Path) -> None:
    """The finding lists the attributes that differ."""
    stub.add("orders", consumer=consumer())
    file = tmp_path / "wrangler.toml"
    file.write_text('name = "shop"\n[[queues.consumers]]\nqueue = "orders"\nmax_retries = 9\ndead_letter_queue = "dlq"\n')
    [finding] = examined(stub, wrangler_files=[str(file)]).findings
    assert finding.rule == "wrangler_differs"
    assert "What is deployed is not what the Wrangler file declares: max_receive_count, max_retries." in finding.summary


def test_without_a_token_wrangler_files_are_examined_alone(stub: Stub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A critical finding says that the account was not examined."""
    monkeypatch.delenv("QUEUEWATCH_CLOUDFLARE_TOKEN")
    file = tmp_path / "wrangler.jsonc"
    file.write_text('{ "queues": { "consumers": [ { "queue": "orders", "max_batch_size": 500, }, ] } }')
    examination = examined(stub, wrangler_files=[str(file)])
    not_examined = examination.findings[0]
    assert (not_examined.rule, not_examined.severity) == ("not_examined", "critical")
    assert "QUEUEWATCH_CLOUDFLARE_TOKEN is not set" in not_examined.summary
    assert "Queues Edit (Queues Read, if sample.size is 0)" in (not_examined.fix or "")
    assert any("max_batch_size is 500" in finding.summary for finding in examination.findings)


def test_without_samples_the_token_only_reads(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cloudflare lets only a token with Queues Edit look at messages; everything else needs Queues Read."""
    monkeypatch.delenv("QUEUEWATCH_CLOUDFLARE_TOKEN")
    [not_examined] = examined(stub, sample={"size": 0}).findings
    assert "API token with Queues Read for this account" in (not_examined.fix or "")


def test_an_unusable_file_is_a_finding_and_stops_the_collector(stub: Stub, tmp_path: Path) -> None:
    """The doctor reports it; the collector is refused for good and not restarted with it."""
    file = tmp_path / "wrangler.toml"
    file.write_text("name =")
    assert rules(examined(stub, wrangler_files=[str(file)])) == [(None, "not_examined", "critical")]
    with pytest.raises(CollectorRefused, match=r"wrangler\.toml"):
        CloudflareCollector(CloudflareCollectorConfig(account_id=ACCOUNT, wrangler_files=(file,)))
