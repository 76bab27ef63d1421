"""Existing dashboards keep working: queuewatch metrics under the names and labels of other exporters."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from sinks.prometheus import Exposition
from tests.alerts.promql import unknown_names
from tests.alerts.scrape import serve_metrics
from tests.alerts.test_dashboards_live import busy_snapshot
from tests.services.prometheus import Binaries, Server, start_prometheus
from tests.waiting import until

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "migration"
FILE = FOLDER / "prometheus.yml"
RULES = FOLDER / "sums.rules.yaml"
PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
ACCOUNT, REGION = "123456789012", "eu-west-1"


def test_promtool_accepts_both_files(prometheus_binaries: Binaries) -> None:
    """The files are the relabelling and the recording rules."""
    for words in (["check", "config", str(FILE)], ["check", "rules", "--lint-fatal", str(RULES)]):
        done = subprocess.run([prometheus_binaries.promtool, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def prometheus(prometheus_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prometheus with every job of the file and a realistic snapshot as its target; the rules run every second."""
    del prometheus_servers
    exposition = Exposition(process_metrics=False)

    def text() -> bytes:
        now_ms = int(time.time() * 1000)
        return exposition.render(busy_snapshot(now_ms), now_ms)

    rules = tmp_path_factory.mktemp("rules") / "sums.rules.yaml"
    rules.write_text(RULES.read_text().replace("interval: 1m", "interval: 1s"))
    with serve_metrics(text) as scraped:
        jobs = yaml.safe_load(FILE.read_text().replace("queuewatch:9400", scraped.address))["scrape_configs"]
        own = {"job_name": "queuewatch", "static_configs": [{"targets": [scraped.address]}]}
        with start_prometheus(rule_files=[rules], config={"scrape_configs": [*jobs, own]}) as server:
            until(lambda: _query(server, "aws_sqs_number_of_messages_sent_sum"), "the rules have recorded a sum", every_s=0.2)
            yield server


def _query(server: Server, expr: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{server.url}/api/v1/query", params={"query": expr}, timeout=10)
    answer.raise_for_status()
    rows: list[dict[str, Any]] = answer.json()["data"]["result"]
    return rows


def _labels(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{name: value for name, value in row["metric"].items() if name not in ("__name__", "instance")} for row in rows]


YACE = {
    "job": "queuewatch-as-yace",
    "dimension_QueueName": "orders",
    "account_id": ACCOUNT,
    "region": REGION,
    "name": f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders",
}


@pytest.mark.parametrize(
    ("series", "value"),
    [
        ("aws_sqs_approximate_number_of_messages_visible_average", 184),
        ("aws_sqs_approximate_number_of_messages_not_visible_average", 12),
        ("aws_sqs_approximate_number_of_messages_delayed_average", 3),
        ("aws_sqs_approximate_age_of_oldest_message_maximum", 54),
    ],
)
def test_names_of_yace(series: str, value: float, prometheus: Server) -> None:
    """Names, labels and values match; the age is the one CloudWatch would show."""
    rows = _query(prometheus, f'{series}{{dimension_QueueName="orders"}}')
    assert _labels(rows) == [YACE]
    assert float(rows[0]["value"][1]) == pytest.approx(value, abs=3)


def test_group_metric_of_yace(prometheus: Server) -> None:
    """It is the only metric on groups that CloudWatch has."""
    rows = _query(prometheus, 'aws_sqs_approximate_number_of_groups_with_inflight_messages_average{job="queuewatch-as-yace"}')
    assert {row["metric"]["dimension_QueueName"]: row["value"][1] for row in rows}["payments.fifo"] == "38"


def test_names_of_cloudwatch_exporter(prometheus: Server) -> None:
    """The job and the label match and there is no instance; the scope stays, so that two regions do not collide."""
    rows = _query(prometheus, 'aws_sqs_approximate_age_of_oldest_message_maximum{queue_name="orders"}')
    assert _labels(rows) == [{"job": "aws_sqs", "queue_name": "orders", "scope_id": f"{ACCOUNT}/{REGION}"}]
    assert "instance" not in rows[0]["metric"]


@pytest.mark.parametrize(
    ("series", "label", "value"),
    [
        ("sqs_approximatenumberofmessages", 'queue="orders"', 184),
        ("sqs_approximatenumberofmessagesnotvisible", 'queue="orders"', 12),
        ("sqs_approximatenumberofmessagesdelayed", 'queue="orders"', 3),
        ("sqs_messages_visible", 'queue_name="orders"', 184),
        ("sqs_messages_not_visible", 'queue_name="orders"', 12),
        ("sqs_messages_delayed", 'queue_name="orders"', 3),
        ("sqs_message_count", f'queue_url="https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/orders"', 184),
        ("sqs_message_age_seconds", f'queue_url="https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/orders"', 161),
    ],
)
def test_names_of_attribute_exporters(series: str, label: str, value: float, prometheus: Server) -> None:
    """There is one series per queue, with the exporter's own label."""
    rows = _query(prometheus, f"{series}{{{label}}}")
    assert len(rows) == 1
    assert float(rows[0]["value"][1]) == pytest.approx(value, abs=3)


def test_the_second_scrape_adds_only_old_names_of_sqs(prometheus: Server) -> None:
    """It duplicates no queuewatch series and gives no other broker an SQS name."""
    assert _query(prometheus, 'count by (job) ({__name__=~"queuewatch_.+", job!="queuewatch"})') == []
    old = '{__name__=~"aws_sqs_approximate.+|sqs_.+"}'
    assert _query(prometheus, f"count({old})")
    for label in ("queue", "queue_name", "dimension_QueueName"):
        assert _query(prometheus, f'{old[:-1]}, {label}=~"ORDERS.EU|image-resize"}}') == []


def test_no_scrape_drops_samples(prometheus: Server) -> None:
    """Two series that become one would be dropped and counted as duplicates."""
    rows = _query(prometheus, "up")
    assert len(rows) == 6
    assert {row["value"][1] for row in rows} == {"1"}
    log = httpx.get(f"{prometheus.url}/metrics", timeout=10).text
    dropped = re.findall(r"^prometheus_target_scrapes_sample_duplicate_timestamp_total (\S+)$", log, re.MULTILINE)
    assert dropped == ["0"]


def test_sums_are_recorded_with_the_old_labels(prometheus: Server) -> None:
    """A counter cannot be renamed to a sum, so recording rules provide it."""
    for total in ("sent", "received", "deleted"):
        rows = _query(prometheus, f'aws_sqs_number_of_messages_{total}_sum{{dimension_QueueName="orders"}}')
        arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
        assert _labels(rows) == [{"account_id": ACCOUNT, "region": REGION, "name": arn, "dimension_QueueName": "orders"}]


def test_the_page_names_existing_metrics() -> None:
    """Every queuewatch series in the tables and the example is in the catalogue of metrics."""
    named = re.findall(r"`((?:increase\()?queuewatch_[^`]+)`", PAGE)
    named += re.findall(r"^max by \(queue\).*$", PAGE, re.MULTILINE)
    assert len(named) > 15
    for expr in named:
        assert unknown_names(expr) == [], expr


def test_the_page_names_every_mapped_metric() -> None:
    """The relabelling, the recording rules and the tables agree."""
    mapped = set(re.findall(r"replacement: ((?:aws_)?sqs_\w+)", FILE.read_text()))
    mapped |= set(re.findall(r"record: (\w+)", RULES.read_text()))
    for name in mapped:
        assert name in PAGE or name.replace("aws_sqs_", "…") in PAGE, name
