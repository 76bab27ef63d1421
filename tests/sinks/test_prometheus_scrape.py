"""A real Prometheus scrapes a real service: every series arrives, including those with hostile names."""

from __future__ import annotations

from typing import Any

import httpx

from sinks.clock import wall_ms
from sinks.http import HttpSettings, create_app, serve
from sinks.store import SnapshotStore
from streaming.judge.metrics import samples
from streaming.judge.snapshot import Snapshot
from tests.services.prometheus import start_prometheus
from tests.sinks.fakes import HOSTILE_NAMES, hostile_snapshot, shop_snapshot
from tests.waiting import until


def query(url: str, expression: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{url}/api/v1/query", params={"query": expression}).json()
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def test_prometheus_takes_every_series(prometheus_servers: None) -> None:
    """There are as many series as in the catalogue, none is refused, types are known, and quantiles can be computed."""
    del prometheus_servers
    now_ms = wall_ms()
    shop, hostile = shop_snapshot(now_ms), hostile_snapshot(now_ms)
    both = Snapshot(now_ms, (*shop.queues, *hostile.queues), (*shop.firing, *hostile.firing), shop.events_total)
    store = SnapshotStore()
    store.publish(both)
    with (
        serve(create_app(store, HttpSettings()), port=0) as server,
        start_prometheus([f"127.0.0.1:{server.port}"]) as prometheus,
    ):
        until(
            lambda: query(prometheus.url, "queuewatch_build_info"),
            "queuewatch is scraped",
            every_s=0.2,
            shows=lambda: httpx.get(f"{prometheus.url}/api/v1/targets").text,
        )
        assert query(prometheus.url, "up")[0]["value"][1] == "1"
        known = sum(1 for _ in samples(both, now_ms))
        (counted,) = query(
            prometheus.url, 'count({__name__=~"queuewatch_.+",__name__!~"queuewatch_(http|ingest|outbox|alertmanager)_.+"})'
        )
        assert int(counted["value"][1]) == known + 1, "and build_info"
        names = {s["metric"]["queue"] for s in query(prometheus.url, "queuewatch_poison_messages")}
        assert {name.encode("utf-8", "replace").decode() for name in HOSTILE_NAMES} <= names
        quantile = 'histogram_quantile(0.5, queuewatch_message_age_seconds_bucket{queue="orders"})'
        assert 1 < float(query(prometheus.url, quantile)[0]["value"][1]) < 15
        kinds = httpx.get(f"{prometheus.url}/api/v1/metadata").json()["data"]
        assert kinds["queuewatch_message_age_seconds"][0]["type"] == "histogram"
