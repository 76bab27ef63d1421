"""Recordings of one incident, and the report of each."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming.core.settings import Settings
from streaming.replay.command import run_replay
from streaming.replay.run import local_engine
from tests.contract.replaying import ev, ms

Event = dict[str, Any]


def poisoned(
    message_id: str = "m-bad", queue: str = "orders", consumer: str = "worker-1", group: str | None = None
) -> list[Event]:
    """One message is received three times in windows of 30 s and then dead-lettered; ten others are settled within a second."""
    about = {"message_id": message_id} | ({} if group is None else {"group": group})
    state = {"visibility_timeout_s": 30, "max_receive_count": 3, "dead_letter_queue": f"{queue}-dlq", "retention_s": 86_400}
    events = [ev("queue_state", 0, queue, attributes={**state, "visible": 0, "in_flight": 0, "delayed": 0})]
    events += [ev("sent", 1, queue, **about)]
    for n in range(3):
        events += [ev("received", 2 + 32 * n, queue, **about, receive_count=n + 1, consumer=consumer)]
    for n in range(10):
        fine = {"message_id": f"fine-{n}"}
        events += [ev("sent", 10 * n + 3, queue, **fine), ev("received", 10 * n + 4, queue, **fine, consumer=consumer)]
        events += [ev("deleted", 10 * n + 5, queue, **fine, consumer=consumer)]
    events += [ev("dead_lettered", 100, queue, **about, to_queue=f"{queue}-dlq", reason="max receives")]
    return sorted(events, key=lambda e: e["at"])


def page_of(events: Sequence[Event], folder: Path, until_s: float = 600) -> tuple[Path, list[dict[str, Any]]]:
    """Return the report of a replay of `events`, and the lines that the replay printed."""
    recording, report, out = folder / "events.ndjson", folder / "report.html", io.StringIO()
    recording.write_text("".join(json.dumps(e) + "\n" for e in events))
    err = io.StringIO()
    code = run_replay(
        [recording],
        every="60s",
        until=str(ms(until_s)),
        settings=Settings(),
        engine=local_engine,
        strict=False,
        out=out,
        err=err,
        report=report,
    )
    assert code == 0, err.getvalue()
    return report, [json.loads(line) for line in out.getvalue().splitlines()]
