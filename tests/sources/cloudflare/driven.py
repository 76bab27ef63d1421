"""A collector that a test drives: its clock moves from one due action to the next, against a stub of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sources.cloudflare.api import CloudflareApi
from sources.cloudflare.collector import IDLE_S, CloudflareCollector
from sources.cloudflare.config import CloudflareCollectorConfig
from sources.events import Event
from tests.sources.cloudflare.api_stub import ACCOUNT, Stub

SENT_MS = 1_750_000_000_000
WORKER = {
    "type": "worker",
    "script_name": "shop",
    "dead_letter_queue": "orders-dlq",
    "settings": {"batch_size": 10, "max_retries": 3, "max_wait_time_ms": 5000, "retry_delay": 0},
}


class Run:
    """A collector whose clock the test moves from one due action to the next."""

    def __init__(self, collector: CloudflareCollector, api: CloudflareApi, clock: Clock) -> None:
        self.events: list[Event] = []
        self._collector = collector
        self._api = api
        self._clock = clock

    @property
    def problems(self) -> int:
        """The number of problems that the collector remembers to have logged."""
        return len(self._collector._logged)

    def of(self, kind: str, queue: str | None = None) -> list[Event]:
        """Return the events of one type."""
        return [e for e in self.events if e["type"] == kind and (queue is None or e.get("queue") == queue)]

    def attributes(self, queue: str) -> dict[str, Any]:
        """Return everything reported about a queue; later values replace earlier ones."""
        return {name: v for event in self.of("queue_state", queue) for name, v in event["attributes"].items()}

    def until(self, ready: Callable[[], Any], within_s: float = 60.0) -> Any:
        """Advance until `ready()` holds."""
        end_s = self._clock.now_s + within_s
        while self._clock.now_s < end_s:
            if answer := ready():
                return answer
            self._step()
        raise AssertionError(f"not within {within_s} s; {len(self.events)} events, the last: {self.events[-3:]}")

    def go_on(self, seconds: float) -> None:
        """Advance the clock."""
        end_s = self._clock.now_s + seconds
        while self._clock.now_s < end_s:
            self._step()

    def _step(self) -> None:
        wait_s = min(self._collector.step(self._api, self.events.extend), IDLE_S)
        if wait_s > 0:
            self._clock.now_s += max(wait_s, 0.001)


class Clock:
    """A clock that the test moves."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def quick(stub: Stub, **changes: Any) -> CloudflareCollectorConfig:
    """Return a configuration with short intervals."""
    short = {
        "account_id": ACCOUNT,
        "api_url": stub.url,
        "poll_interval_s": 0.1,
        "discovery_interval_s": 0.3,
        "heartbeat_interval_s": 0.1,
        "requests_per_5min": 300_000,
        "timeout_s": 2.0,
        "sample": {"interval_s": 0.1},
    }
    return CloudflareCollectorConfig.model_validate(short | changes)


@contextmanager
def running(stub: Stub, **changes: Any) -> Iterator[Run]:
    """Run a collector with short intervals and its own clock in the test's thread."""
    clock = Clock()
    collector = CloudflareCollector(quick(stub, **changes), clock)
    with collector.open_api() as api:
        yield Run(collector, api, clock)
