"""Every panel shows data: its queries run against a Prometheus that scrapes a realistic snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from alerts.config import AlertRulesConfig
from alerts.objectives import Objective
from alerts.rules import PROMETHEUS_RULES, generate
from sinks.prometheus import Exposition, Family
from streaming.core.state.duration_buckets import DURATIONS
from streaming.judge.snapshot import DURATION_BUCKETS_S, QUEUE_STATUSES, Duration, Snapshot
from tests.alerts.scrape import serve_metrics
from tests.alerts.test_dashboards import BOARDS, targets, variables
from tests.services.prometheus import Server, start_prometheus
from tests.sinks.fakes import finding, shop_snapshot
from tests.waiting import until

SUBSTITUTED = {"$__rate_interval": "10s"} | {
    f"${name}": variable["allValue"] for name, variable in variables("queuewatch-overview.json").items() if "allValue" in variable
}
"""As Grafana does where all values are chosen."""


def busy_snapshot(now_ms: int) -> Snapshot:
    """Return the example shop with signals firing and with everything that panels query."""
    shop = shop_snapshot(now_ms)
    skewed = [replace(queue, clock_skew_s=75.0) if queue.queue == "orders" else queue for queue in shop.queues]
    # Counters must grow, or their rate is zero.
    skewed = [replace(queue, totals={**queue.totals, "received": now_ms // 10, "deleted": now_ms // 20}) for queue in skewed]
    took = Duration((now_ms // 40, *[now_ms // 50] * len(DURATION_BUCKETS_S)), now_ms / 10)
    skewed = [replace(queue, durations=dict.fromkeys(DURATIONS, took)) for queue in skewed]
    statuses = [replace(queue, status=status) for queue, status in zip(skewed, QUEUE_STATUSES, strict=False)]
    partial = finding("TelemetryPartial", "orders", "info", now_ms - 60_000, "85% of the messages are tracked.")
    clock = finding("ClockUntrusted", "", "warning", now_ms - 60_000, "Senders are ahead.", system="", scope="", part="senders")
    return replace(
        shop,
        queues=(*statuses, *skewed[len(statuses) :]),
        firing=(*shop.firing, partial, clock),
        folded={"groups": 204, "messages": 12},
    )


@pytest.fixture(scope="module")
def prometheus(prometheus_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus with a few seconds of the snapshot, and the rules evaluated every second."""
    del prometheus_servers
    folder = tmp_path_factory.mktemp("rules")
    generate(folder, AlertRulesConfig(interval_s=0.2, objectives={"all": Objective(queues=".+", within_s=30)}))

    def lost() -> Iterable[Family]:
        yield Family("queuewatch_pipeline_lost_records_total", [({"topic": "queuewatch", "partition": "0"}, time.time() // 1)])
        yield Family("queuewatch_pipeline_lost_files_total", [({"reason": "gone"}, time.time() // 1)])

    exposition = Exposition(process_metrics=False, about_sinks=[lost])

    def text() -> bytes:
        now_ms = int(time.time() * 1000)
        return exposition.render(busy_snapshot(now_ms), now_ms)

    text()  # The first rendering imports modules: it takes longer than a scrape may.
    with serve_metrics(text) as scraped, start_prometheus([scraped.address], rule_files=[folder / PROMETHEUS_RULES]) as server:
        _wait_for_three_scrapes(server)
        yield server


def _wait_for_three_scrapes(server: Server) -> None:
    scraped = "count_over_time(queuewatch_events_total[20s]) >= 3 and on () queue:queuewatch_objective_budget_left:ratio28d"
    until(lambda: query(server, scraped), "Prometheus has scraped the snapshot three times", every_s=0.1)


def query(server: Server, expr: str) -> list[dict[str, object]]:
    """Return the instant value of an expression; an error of Prometheus fails the test."""
    answer = httpx.get(f"{server.url}/api/v1/query", params={"query": expr}, timeout=10)
    assert answer.status_code == 200, answer.text
    result: list[dict[str, object]] = answer.json()["data"]["result"]
    return result


def substituted(expr: str) -> str:
    """Fill in Grafana's variables."""
    for variable, value in SUBSTITUTED.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr
    return expr


EXPRESSIONS = sorted({(name, title, expr) for name in BOARDS for title, expr in targets(name)})


@pytest.mark.parametrize(("name", "title", "expr"), EXPRESSIONS, ids=lambda v: str(v)[:40])
def test_a_panel_shows_data(prometheus: Server, name: str, title: str, expr: str) -> None:
    """The query has no error and is not empty: a panel that is empty during an incident is useless."""
    # On a busy machine a scrape may fail, and its series are empty until the next one.
    until(lambda: query(prometheus, substituted(expr)), f"{title} of {name} shows something", every_s=0.5)


def test_variables_have_values(prometheus: Server) -> None:
    """The series in the variables' queries exist."""
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            series, label = variable["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
            answer = httpx.get(
                f"{prometheus.url}/api/v1/label/{label}/values", params={"match[]": substituted(series)}, timeout=10
            )
            assert answer.json()["data"], variable["name"]


def test_one_queue_can_be_chosen(prometheus: Server) -> None:
    """With one queue's name in the variable, a panel shows only that queue."""
    expr = next(e for name, title, e in EXPRESSIONS if title == "Highest receive count")
    chosen = substituted(expr.replace("$queue", r"payments\\.fifo"))
    found = query(prometheus, chosen)
    assert [(row["metric"], row["value"][1]) for row in found] == [  # type: ignore[index]
        ({"system": "aws_sqs", "scope_id": "123456789012/eu-west-1", "queue": "payments.fifo"}, "11")
    ]


def test_a_signal_about_no_queue_is_shown_unless_queues_are_chosen(prometheus: Server) -> None:
    """Of a clock or a collector: in the list of signals and in their number, but not as a queue of the table."""
    shown = {title: expr for title, expr in targets("queuewatch-overview.json") if "queuewatch_signals" in expr}
    listed, warnings = shown["Signals firing"], shown["Warnings"]

    def number(**labels: str) -> int:
        matchers = ", ".join(f'{label}="{value}"' for label, value in {"severity": "warning", **labels}.items())
        return len(query(prometheus, f"max by (system, scope_id, queue, signal) (queuewatch_signals{{{matchers}}})"))

    def found(expr: str) -> list[Any]:
        return query(prometheus, substituted(expr))

    assert number(queue="") >= number(signal="ClockUntrusted") == 1
    assert "ClockUntrusted" in {row["metric"]["signal"] for row in found(listed)}
    assert float(found(warnings)[0]["value"][1]) >= number()
    assert "ClockUntrusted" not in {row["metric"]["signal"] for row in found(listed.replace("$queue", "orders"))}
    assert all("queue" in row["metric"] for row in found(shown["One row per queue"]))


def test_the_rules_evaluate_without_errors(prometheus: Server) -> None:
    """Every rule is evaluated and its templates are filled; an error would be in the rule's state."""
    wanted = {"QueuewatchPoisonMessage", "QueuewatchGroupStuck", "QueuewatchDeadLetterArrived"}
    rules: list[dict[str, object]] = []

    def evaluated() -> bool:
        groups = httpx.get(f"{prometheus.url}/api/v1/rules", timeout=10).json()["data"]["groups"]
        rules[:] = [rule for group in groups for rule in group["rules"]]
        firing = {rule["name"] for rule in rules if rule.get("state") == "firing"}
        return wanted <= firing and all(rule["health"] != "unknown" for rule in rules)

    until(evaluated, f"{wanted} fire and every rule is evaluated", every_s=0.2, shows=lambda: rules)
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
