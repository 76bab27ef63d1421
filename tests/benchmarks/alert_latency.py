"""From a changed series to a pager: how long Prometheus and Alertmanager take, leg by leg, with their real binaries.

`measure_prometheus_leg` starts both beside a queuewatch that runs elsewhere, and takes the fault as a callable: a test passes
a stand-in for `/metrics`, an end-to-end run the URL of a live service and a fault at the broker. All times come from the
programs themselves (the sample's time, the alert's start, the arrival of the webhook), not from polling.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from alerts.config import AlertRulesConfig
from alerts.rules import PROMETHEUS_RULES, generate
from sinks.prometheus import Exposition
from streaming.judge.snapshot import Snapshot
from tests.alerts.scrape import serve_metrics
from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.webhook import Notification, Notifications, paged_alertmanager
from tests.services.process import ServiceUnavailable
from tests.services.prometheus import Server, start_prometheus
from tests.sinks.fakes import finding, shop_snapshot

JOB = "queuewatch"


@dataclass(frozen=True, slots=True)
class AlertTimings:
    """When each leg was finished, in epoch seconds."""

    triggered_s: float
    """When the trigger had returned."""
    scraped_s: float
    """The sample time of the first scrape with the change."""
    evaluated_s: float
    """The evaluation at which the alert began to fire."""
    notified_s: float
    """The arrival of the webhook."""

    @property
    def legs(self) -> dict[str, float]:
        """Seconds from each step to the next, and in total."""
        return {
            "trigger to scrape": self.scraped_s - self.triggered_s,
            "scrape to evaluation": self.evaluated_s - self.scraped_s,
            "evaluation to webhook": self.notified_s - self.evaluated_s,
            "trigger to webhook": self.notified_s - self.triggered_s,
        }


class AlertPath:
    """A Prometheus with the generated rules, an Alertmanager, and a webhook at the end."""

    def __init__(self, prometheus: Server, alertmanager: Server, notifications: Notifications) -> None:
        self.prometheus = prometheus
        self.alertmanager = alertmanager
        self.notifications = notifications
        self._read = 0

    def wait_for_scrape(self, within_s: float = 60) -> None:
        """Wait until the target has been scraped. Raises `TimeoutError`."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if any(row["value"][1] == "1" for row in self.query(f'up{{job="{JOB}"}}')):
                return
            time.sleep(0.05)
        raise TimeoutError(f"Prometheus did not scrape its target within {within_s} s")

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Run an instant query."""
        answer = httpx.get(f"{self.prometheus.url}/api/v1/query", params={"query": expr}, timeout=10)
        answer.raise_for_status()
        rows: list[dict[str, Any]] = answer.json()["data"]["result"]
        return rows

    def next_notification(self, within_s: float) -> Notification | None:
        """Return the next webhook that was not read yet, or None if none arrives."""
        notification = self.notifications.wait_for(self._read, within_s)
        self._read += notification is not None
        return notification

    def notification_of(self, alertname: str, within_s: float, **labels: str) -> tuple[Notification, Mapping[str, Any]]:
        """Return the next webhook in which that alert fires, skipping others. Raises `TimeoutError`."""
        deadline = time.monotonic() + within_s
        while (left := deadline - time.monotonic()) > 0:
            notification = self.next_notification(left)
            if notification and (alert := notification.find(alertname, **labels)):
                return notification, alert
        raise TimeoutError(f"no webhook about {alertname} {labels or ''} within {within_s} s")


@contextmanager
def alert_path(metrics_url: str, *, scrape_s: int = 1, evaluate_s: float = 1) -> Iterator[AlertPath]:
    """Run the path for a queuewatch at `metrics_url`, scraped and evaluated this often. Raises `ServiceUnavailable`."""
    target = urlsplit(metrics_url)
    scrape = {
        "job_name": JOB,
        "metrics_path": target.path or "/metrics",
        "static_configs": [{"targets": [target.netloc]}],
    }
    with tempfile.TemporaryDirectory(prefix="queuewatch-rules-") as folder:
        generate(Path(folder), AlertRulesConfig(job=JOB, interval_s=evaluate_s))
        with (
            paged_alertmanager() as (alertmanager, notifications),
            start_prometheus(
                rule_files=[Path(folder) / PROMETHEUS_RULES],
                alertmanager=alertmanager,
                interval=f"{scrape_s}s",
                config={"scrape_configs": [scrape]},
            ) as prometheus,
        ):
            yield AlertPath(prometheus, alertmanager, notifications)


def measure_prometheus_leg(
    metrics_url: str,
    trigger: Callable[[], object],
    *,
    signal: str = "PoisonMessage",
    labels: Mapping[str, str] | None = None,
    within_s: float = 45.0,
) -> AlertTimings:
    """Measure from `trigger()` to the webhook about `signal`, through a Prometheus that scrapes `metrics_url` every second.

    `trigger` is called once the target has been scraped. It must make the signal fire on `metrics_url`, where it must not fire
    before. `labels` choose among several queues. Raises `TimeoutError` after `within_s`, and `ServiceUnavailable` if the
    programs are missing.
    """
    with alert_path(metrics_url) as path:
        path.wait_for_scrape()
        return timed(path, trigger, signal=signal, labels=labels or {}, within_s=within_s)


def timed(
    path: AlertPath, trigger: Callable[[], object], *, signal: str, labels: Mapping[str, str], within_s: float
) -> AlertTimings:
    """Measure one round on a running path."""
    trigger()
    triggered_s = time.time()
    notification, alert = path.notification_of(f"Queuewatch{signal}", within_s, **labels)
    return AlertTimings(
        triggered_s=triggered_s,
        scraped_s=first_sample_s(path, signal, alert["labels"]),
        evaluated_s=epoch_s(alert["startsAt"]),
        notified_s=notification.at_s,
    )


def epoch_s(rfc3339: str) -> float:
    """Convert a time in Alertmanager's format to epoch seconds."""
    return datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).timestamp()


def first_sample_s(path: AlertPath, signal: str, labels: Mapping[str, str]) -> float:
    """Return the time of the first sample of the signal's series."""
    matchers = {"signal": signal} | {name: labels[name] for name in ("system", "scope_id", "queue") if name in labels}
    chosen = ",".join(f"{name}={json.dumps(value)}" for name, value in matchers.items())
    rows = path.query(f"queuewatch_signals{{{chosen}}}[10m]")
    return min(float(time_s) for row in rows for time_s, _ in row["values"])


class StandIn:
    """A `/metrics` endpoint of a healthy shop, whose signals a test switches on and off."""

    def __init__(self) -> None:
        self._exposition = Exposition(process_metrics=False)
        self._firing: tuple[Any, ...] = ()
        # The first snapshot takes seconds on a busy machine, in which each scrape would time out and begin another one.
        self.text()

    def fire(self, signal: Any, queue_name: str, number: int = 1, severity: Any = "warning") -> None:
        """From now on show `number` findings of `signal`; 0 ends it."""
        now_ms = int(time.time() * 1000)
        others = tuple(f for f in self._firing if (f.key.signal, f.key.queue) != (signal, queue_name))
        own = tuple(finding(signal, queue_name, severity, now_ms, "so", message_id=f"m{i}") for i in range(number))
        self._firing = (*others, *own)

    def text(self) -> bytes:
        """Return the current exposition."""
        now_ms = int(time.time() * 1000)
        shop = shop_snapshot(now_ms)
        snapshot = Snapshot(
            now_ms, shop.queues, self._firing, shop.events_total, collectors={"sqs-eu": now_ms}, pipeline=shop.pipeline
        )
        return self._exposition.render(snapshot, now_ms)


def measure(run: Run, *, quick: bool = False) -> None:
    """Measure rounds on one running path, each with a queue of its own; report their medians and maxima."""
    rounds = 3 if quick else 12
    stand_in = StandIn()
    try:
        with serve_metrics(stand_in.text) as scraped, alert_path(scraped.metrics_url) as path:
            path.wait_for_scrape()
            found = []
            for i in range(rounds):
                # A new phase within the second each time, so that triggers are not synchronized with scrapes.
                time.sleep(1 + (i * 0.618) % 1)
                name = f"orders-{i}"
                found.append(
                    timed(
                        path,
                        lambda name=name: stand_in.fire("PoisonMessage", name),  # type: ignore[misc]
                        signal="PoisonMessage",
                        labels={"queue": name},
                        within_s=30,
                    )
                )
    except ServiceUnavailable as missing:
        run.leave_out("alert latency", missing.reason)
        return
    for leg in found[0].legs:
        times = [timings.legs[leg] for timings in found]
        whole = leg == "trigger to webhook"
        run.add(
            Figure(
                f"alert_{leg.replace(' ', '_')}_s",
                f"alert: {leg}, scraped and evaluated every second (median)",
                statistics.median(times),
                "s",
                at_most=3.0 if whole else None,
                detail={"worst_s": max(times), "rounds": rounds},
            )
        )
