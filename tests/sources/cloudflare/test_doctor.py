"""The doctor looks once, says what will hurt and how to mend it, and answers with an exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sources.cloudflare.collector import CloudflareCollector
from sources.cloudflare.config import CloudflareCollectorConfig
from sources.cloudflare.doctor import run_doctor
from sources.collect.base import CollectorRefused
from tests.sources.cloudflare.api_stub import ACCOUNT, TOKEN, Stub, answering, serving

DAY_S = 86_400


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """An account without queues, and its token."""
    monkeypatch.setenv("QUEUEWATCH_CLOUDFLARE_TOKEN", TOKEN)
    with serving() as stub:
        yield stub


def consumer(dead_letter_queue: str = "dlq", **settings: Any) -> dict[str, Any]:
    """A Worker as the API shows it."""
    told = {"batch_size": 10, "max_retries": 3, "max_wait_time_ms": 5000, "retry_delay": 0} | settings
    return {"type": "worker", "script_name": "shop", "dead_letter_queue": dead_letter_queue, "settings": told}


def examine(stub: Stub, **config: Any) -> tuple[int, str]:
    """Exit code and what was printed."""
    lines: list[str] = []
    section = CloudflareCollectorConfig.model_validate({"account_id": ACCOUNT, "api_url": stub.url, **config})
    code = run_doctor(section, lines.append)
    return code, "\n".join(lines)


def test_good_settings_need_no_mending(stub: Stub) -> None:
    """0, and every queue named."""
    stub.add("orders", consumer=consumer(), settings={"message_retention_period": 4 * DAY_S})
    stub.add("dlq", settings={"message_retention_period": 14 * DAY_S})
    assert examine(stub) == (0, "ok       dlq\nok       orders")


def test_what_hurts_is_named_with_the_fix(stub: Stub) -> None:
    """One line for each finding, under its queue."""
    stub.add("bad", consumer=consumer("", max_retries=0))
    stub.add("good", consumer=consumer())
    code, text = examine(stub)
    assert code == 1
    assert "warning  bad\n         no_dead_letter_queue: " in text
    assert "no_retries: " in text
    assert "ok       good" in text


def test_a_dead_letter_queue_must_keep_messages_longer(stub: Stub) -> None:
    """It keeps the time a message was sent, not the time it arrived."""
    stub.add("orders", consumer=consumer(), settings={"message_retention_period": 4 * DAY_S})
    dlq = stub.add("dlq", settings={"message_retention_period": 4 * DAY_S})
    assert "dead_letter_retention: " in examine(stub)[1]
    dlq.settings = {"message_retention_period": 4 * DAY_S + 1}
    assert examine(stub)[0] == 0


def test_consumers_that_the_list_leaves_out_are_asked_for(stub: Stub) -> None:
    """As the collector does."""
    queue = stub.add("orders", consumer=consumer(max_retries=0))
    entry = {**queue.as_listed(), "consumers": None, "consumers_total_count": 1}
    stub.standing["/queues"] = answering(200, json.dumps({"success": True, "errors": [], "result": [entry]}))
    assert "no_retries" in examine(stub)[1]


def test_a_wrangler_file_that_was_not_deployed(stub: Stub, tmp_path: Path) -> None:
    """Named with the attributes that differ."""
    stub.add("orders", consumer=consumer())
    file = tmp_path / "wrangler.toml"
    file.write_text('name = "shop"\n[[queues.consumers]]\nqueue = "orders"\nmax_retries = 9\ndead_letter_queue = "dlq"\n')
    code, text = examine(stub, wrangler_files=[str(file)])
    assert code == 1
    assert "wrangler_differs: What is deployed is not what the Wrangler file declares: max_receive_count, max_retries." in text


def test_without_a_token_wrangler_files_are_examined_alone(stub: Stub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The missing token is an error all the same."""
    monkeypatch.delenv("QUEUEWATCH_CLOUDFLARE_TOKEN")
    file = tmp_path / "wrangler.jsonc"
    file.write_text('{ "queues": { "consumers": [ { "queue": "orders", "max_batch_size": 500, }, ] } }')
    code, text = examine(stub, wrangler_files=[str(file)])
    assert code == 1
    assert "QUEUEWATCH_CLOUDFLARE_TOKEN is not set" in text
    assert "Queues Read" in text
    assert "beyond_limits: max_batch_size is 500" in text


def test_a_file_that_cannot_be_used_ends_it(stub: Stub, tmp_path: Path) -> None:
    """For the doctor, and for good: a collector is not started again and again with it."""
    file = tmp_path / "wrangler.toml"
    file.write_text("name =")
    code, text = examine(stub, wrangler_files=[str(file)])
    assert (code, text.startswith("ERROR")) == (1, True)
    with pytest.raises(CollectorRefused, match=r"wrangler\.toml"):
        CloudflareCollector(CloudflareCollectorConfig(account_id=ACCOUNT, wrangler_files=(file,)))
