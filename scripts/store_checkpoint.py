"""Store a small checkpoint written by this release, which later releases must be able to continue.

`python scripts/store_checkpoint.py NAME` runs the service on a few thousand events, stops it, and writes
`tests/streaming/checkpoints/NAME.tar.gz` (the checkpoint and its spool folder) and `NAME.json` (what it published last).
Run it with the release whose format must stay readable, before the format of anything in a checkpoint changes.
"""

from __future__ import annotations

import json
import random
import sys
import tarfile
import tempfile
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.e2e.service import Service, running

TARGET = Path(__file__).parents[1] / "tests" / "streaming" / "checkpoints"
SETTLED = 4_400
"""Number of deleted messages in one shard; enough for a tombstone segment of its state."""


def main(name: str) -> None:
    """Run the service, and write the archive and the JSON file."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        config = {
            "source": {"spool": {"folder": "spool"}},
            "spark": {"checkpoint_dir": "checkpoint", "shards": 2, "master": "local[2]", "driver_memory": "1g"},
            "signal_log": {"path": "signals.ndjson"},
            "log": {"format": "json"},
        }
        (folder / "spool").mkdir()
        now_ms = time.time_ns() // 1_000_000
        _put(folder, _events(now_ms))
        with running(folder, config) as service:
            service.wait(lambda m: m.get('queuewatch_events_total{result="accepted"}', 0) > SETTLED)
            _put(folder, _later(time.time_ns() // 1_000_000))
            service.wait(lambda m: any('queue="later"' in key for key in m))
            published = _published(service)
            assert service.stop() == 0, service.words()
        TARGET.mkdir(parents=True, exist_ok=True)
        with tarfile.open(TARGET / f"{name}.tar.gz", "w:gz", compresslevel=9) as archive:
            archive.add(folder / "checkpoint", "checkpoint")
            archive.add(folder / "spool", "spool")
    (TARGET / f"{name}.json").write_text(json.dumps(published, indent=1, sort_keys=True) + "\n")


def _put(folder: Path, events: list[dict[str, Any]]) -> None:
    part = folder / "spool" / ".part"
    part.write_text("".join(json.dumps(event) + "\n" for event in events))
    part.rename(folder / "spool" / f"{uuid.uuid4().hex}.ndjson")


def _events(now: int) -> list[dict[str, Any]]:
    """Return events for every kind of message: live, settled, lost, dead-lettered, grouped, delayed, with any id format."""
    numbers = random.Random(7)
    common = {"v": 1, "system": "aws_sqs", "scope": "eu/1"}
    out: list[dict[str, Any]] = [
        {
            **common, "type": "queue_state", "at": now - 60_000, "queue": queue,
            "attributes": {"visible": 40, "in_flight": 2, "delayed": 0, "visibility_timeout_s": 30, "retention_s": 345_600,
                           "max_receive_count": 5, "dead_letter_queue": "orders-dlq", "tag_team": "shop"},
        }
        for queue in ("orders", "payments.fifo")
    ]  # fmt: skip
    for number in range(SETTLED):
        message = {**common, "queue": "payments.fifo", "message_id": str(uuid.UUID(int=number + 1)), "sequence": str(number)}
        message["group"] = f"customer-{number % 7}"
        out.append({**message, "type": "sent", "at": now - 50_000, "sent_at": now - 50_000})
        out.append({**message, "type": "received", "at": now - 45_000, "receive_count": 1, "consumer": "till-1"})
        out.append({**message, "type": "deleted", "at": now - 44_990 + number, "consumer": "till-1"})
    for number in range(60):
        message_id = str(uuid.UUID(int=numbers.getrandbits(128))) if number % 2 else f"order/{number}"
        message = {**common, "queue": "orders", "message_id": message_id}
        if number % 3 == 0:
            message["group"] = f"tenant-{number % 4}"
        out.append({**message, "type": "sent", "at": now - 30_000 - number, "sent_at": now - 30_000 - number})
        if number % 4 == 0:
            received = {"receive_count": 1 + number % 3, "consumer": f"worker-{number % 3}", "invisible_until": now + 86_400_000}
            out.append({**message, "type": "received", "at": now - 20_000, "batch_id": f"b{number % 5}", **received})
        if number % 10 == 0:
            out.append({**message, "type": "dead_lettered", "at": now - 10_000, "to_queue": "orders-dlq"})
        if number % 20 == 1:
            out.append({**message, "type": "dropped", "at": now - 9_000, "reason": "too large"})
    out += [
        {**common, "queue": "payments.fifo", "message_id": f"open-{n}", "group": f"customer-{n % 3}", "sequence": str(10_000 + n),
         "type": "sent", "at": now - 5_000, "sent_at": now - 5_000}
        for n in range(12)
    ]  # fmt: skip
    out.append({**common, "queue": "orders", "type": "batch", "at": now - 4_000, "batch_id": "b1",
                "attributes": {"size": 3, "failed": True, "acked": 0, "retried": 3}})  # fmt: skip
    out.append({**common, "queue": "orders", "type": "consumer_state", "at": now - 4_000, "consumer": "worker-1",
                "attributes": {"prefetch": 10, "dispatched": 4, "connected": True}})  # fmt: skip
    out.append({**common, "queue": "orders", "type": "heartbeat", "at": now - 3_000, "consumer": "collector-1"})
    out.append({**common, "queue": "orders", "type": "nonsense", "at": now - 3_000})
    return out


def _later(now: int) -> list[dict[str, Any]]:
    return [{"v": 1, "type": "sent", "at": now, "system": "aws_sqs", "queue": "later", "message_id": "m1", "sent_at": now}]


def _published(service: Service) -> dict[str, Any]:
    """Return what later releases must still report: totals and counts that do not change with time."""
    durations = ("queuewatch_wait_seconds", "queuewatch_processing_seconds", "queuewatch_sojourn_seconds")
    lasting = ("queuewatch_messages_", "queuewatch_events_total", "queuewatch_tracked_messages", *durations)
    with urllib.request.urlopen(service.url + "/api/v1/queues", timeout=10) as answer:  # noqa: S310 -- a service started here
        queues = json.load(answer)
    metrics = {name: value for name, value in sorted(service.metrics().items()) if name.startswith(lasting)}
    return {"metrics": metrics, "queues": sorted(queue["queue"] for queue in queues["queues"])}


if __name__ == "__main__":
    main(sys.argv[1])
