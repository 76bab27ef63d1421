"""A real Prometheus with native histograms scrapes a real service, as docs/metrics.md says."""

from __future__ import annotations

import math
import random
from itertools import count
from typing import Any

import httpx
import pytest

from sinks.clock import wall_ms
from sinks.http import HttpSettings, create_app, serve
from sinks.store import SnapshotStore
from streaming.core.settings import Settings
from streaming.judge.judge import judge
from streaming.judge.memory.memory import JudgeMemory
from streaming.judge.snapshot import Snapshot
from tests.core.driving import T0, event, run_steps
from tests.services.prometheus import start_prometheus
from tests.sinks.test_prometheus_scrape import query
from tests.waiting import until

WORDS = ("wait", "processing", "sojourn")
QUANTILES = (0.1, 0.5, 0.9, 0.99)


def settled(messages: int) -> tuple[Snapshot, dict[str, list[int]]]:
    """Return the snapshot after messages of very different durations were deleted, and those durations in milliseconds."""
    numbers, took = random.Random(3), {word: list[int]() for word in WORDS}
    events: list[dict[str, Any]] = []
    for n in range(messages):
        wait, work = (min(int(numbers.lognormvariate(mu, 2)), 250_000) for mu in (7, 5))
        named = {"message_id": f"{n:08x}-0000-4000-8000-000000000000"}
        events += [
            event("sent", 0, **named),
            event("received", wait, receive_count=1, **named),
            event("deleted", wait + work, **named),
        ]
        for word, ms in zip(WORDS, (wait, work, wait + work), strict=True):
            took[word].append(ms)
    report = run_steps([(510_000, events)], shards=2)[-1]
    return judge(JudgeMemory.empty(), report, T0 + 510_000, Settings())[1], took


def test_quantiles_of_native_histograms_are_within_one_bucket(prometheus_servers: None) -> None:
    """Prometheus computes them from what it scraped; the classic series are all there, though the server prefers protobuf."""
    del prometheus_servers
    snapshot, took = settled(2_000)
    store = SnapshotStore()
    store.publish(snapshot)
    with serve(create_app(store, HttpSettings(clock_ms=wall_ms)), port=0) as server:
        targets = [{"targets": [f"127.0.0.1:{server.port}"]}]
        jobs = [
            {"job_name": "queuewatch", "static_configs": targets},
            {"job_name": "queuewatch-native", "static_configs": targets, "metrics_path": "/metrics/native"},
        ]
        with start_prometheus(config={"scrape_configs": jobs}, features=["native-histograms"]) as prometheus:
            until(
                lambda: len(query(prometheus.url, "up == 1")) == 2 and query(prometheus.url, "queuewatch_sojourn_seconds"),
                "both jobs are scraped",
                every_s=0.2,
                shows=lambda: httpx.get(f"{prometheus.url}/api/v1/targets").text,
            )
            for word in WORDS:
                name, exact = f"queuewatch_{word}_seconds", sorted(took[word])
                for quantile in QUANTILES:
                    (found,) = query(prometheus.url, f"histogram_quantile({quantile}, {name})")
                    assert found["metric"]["queue"] == "orders"
                    assert within_one_bucket(float(found["value"][1]), exact[math.ceil(quantile * len(exact)) - 1] / 1000)
                (counted,) = query(prometheus.url, f"histogram_count({name})")
                (summed,) = query(prometheus.url, f"histogram_sum({name})")
                assert float(counted["value"][1]) == len(exact)
                assert float(summed["value"][1]) == pytest.approx(sum(exact) / 1000)
                classic = query(prometheus.url, f"{name}_bucket")
                assert len(classic) == 13
                assert {one["metric"]["job"] for one in classic} == {"queuewatch"}
                (count_of_classic,) = query(prometheus.url, f"{name}_count")
                assert float(count_of_classic["value"][1]) == len(exact)


def within_one_bucket(found_s: float, exact_s: float) -> bool:
    """Whether a quantile is in the bucket of the exact one, or at its edges."""
    if exact_s == 0:
        return found_s == 0
    upper = next(2 ** (k / 4) for k in count(-80) if 2 ** (k / 4) >= exact_s)
    return upper / 2**0.25 * (1 - 1e-9) <= found_s <= upper * (1 + 1e-9)
