"""Health checks: whether the service is alive, and whether its data can be trusted."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sinks.explain.formatting import duration
from sinks.http.responses import json_response
from sinks.http.settings import HttpSettings
from sinks.store import SnapshotStore
from streaming.judge.snapshot import Snapshot


class Health:
    """`/-/healthy` and `/-/ready`.

    They do not run in threads: those may all be busy with requests that take long, and a probe without an answer restarts the
    process.
    """

    def __init__(self, store: SnapshotStore, settings: HttpSettings) -> None:
        self._store = store
        self._settings = settings

    async def healthy(self, _: Request) -> Response:
        """Answer 200 if the process is healthy; otherwise restart it."""
        fault = self._settings.job_fault() if self._settings.job_fault else None
        if fault is not None:
            return json_response({"healthy": False, "reasons": [fault]}, status=503)
        return json_response({"healthy": True})

    async def ready(self, _: Request) -> Response:
        """Answer 200 if the data can be trusted: data has flowed and the last batch is recent."""
        published = self._store.latest
        reasons = not_ready(
            None if published is None else published.snapshot,
            self._settings.clock_ms(),
            self._settings.ready_within_s,
            self._settings.job_silent_s() if self._settings.job_silent_s else 0.0,
        )
        return json_response({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)


def not_ready(snapshot: Snapshot | None, now_ms: int, within_s: float, silent_s: float = 0.0) -> list[str]:
    """Return the reasons not to trust the data at `now_ms` (epoch milliseconds); empty if it can be trusted.

    `silent_s` is the time since the last committed batch. A clock that was set back shows a time before the last batch.
    """
    if snapshot is None:
        return ["no batch has been published yet: the job is starting, or cannot reach its source (see its log)"]
    reasons = []
    if not any(snapshot.events_total.values()):
        reasons.append("no telemetry event has been read yet: check the senders and the collectors")
    last_ms = max(snapshot.at_ms, snapshot.pipeline.last_batch_at_ms or 0)
    age_s = max(silent_s, (now_ms - last_ms) / 1000)
    if age_s > within_s:
        reasons.append(
            f"the last batch was completed {duration(age_s)} ago (limit: {duration(within_s)}): "
            "the job is stuck or stopped (see its log)"
        )
    return reasons
