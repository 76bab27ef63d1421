"""A changed series reaches a webhook through a real Prometheus and Alertmanager, with the generated rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.alerts.scrape import Scraped, serve_metrics
from tests.benchmarks.alert_latency import AlertPath, StandIn, alert_path, measure_prometheus_leg
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def stand_in() -> StandIn:
    """Metrics of a shop without firing signals."""
    return StandIn()


@pytest.fixture(scope="module")
def scraped(stand_in: StandIn) -> Iterator[Scraped]:
    """The `/metrics` endpoint of the stand-in."""
    with serve_metrics(stand_in.text) as server:
        yield server


@pytest.fixture(scope="module")
def path(scraped: Scraped, prometheus_servers: None) -> Iterator[AlertPath]:
    """Prometheus, Alertmanager and webhook behind it, after the first scrape."""
    del prometheus_servers
    with alert_path(scraped.metrics_url) as running:
        running.wait_for_scrape()
        yield running


def test_a_fault_reaches_the_webhook(stand_in: StandIn, scraped: Scraped, prometheus_servers: None) -> None:
    """The legs of the path are in order."""
    del prometheus_servers
    timings = measure_prometheus_leg(
        scraped.metrics_url, lambda: stand_in.fire("QueueStalled", "orders", severity="critical"), signal="QueueStalled"
    )
    legs = timings.legs
    print("\n" + "  ".join(f"{leg}: {seconds:.2f} s" for leg, seconds in legs.items()))  # noqa: T201 -- the measured figures
    assert timings.scraped_s <= timings.evaluated_s + 0.01
    assert timings.evaluated_s <= timings.notified_s
    assert legs["trigger to webhook"] > 0


def test_each_new_dead_letter_notifies_again(stand_in: StandIn, path: AlertPath) -> None:
    """A changed label makes the second arrival a new alert, which does not wait for repeat_interval."""
    stand_in.fire("DeadLetterArrived", "orders-dlq", 1)
    _, first = path.notification_of("QueuewatchDeadLetterArrived", 20, arrivals="1")
    stand_in.fire("DeadLetterArrived", "orders-dlq", 2)
    _, second = path.notification_of("QueuewatchDeadLetterArrived", 20, arrivals="2")
    assert first["labels"]["queue"] == second["labels"]["queue"] == "orders-dlq"
    assert second["annotations"]["description"].startswith("Messages that arrived in aws_sqs queue orders-dlq")
    # From another series, queried when the alert fired.
    assert "Time until retention deletes the first: 2h 30m" in second["annotations"]["description"]


def test_a_lasting_signal_notifies_once_and_does_not_flap(stand_in: StandIn, path: AlertPath) -> None:
    """More poison messages change the annotation, not the alert; a scrape without the signal does not resolve it."""
    stand_in.fire("PoisonMessage", "orders", 1)
    _, alert = path.notification_of("QueuewatchPoisonMessage", 20)
    assert alert["annotations"]["description"].startswith("Messages of aws_sqs queue orders")
    stand_in.fire("PoisonMessage", "orders", 3)
    _until(path, 'queuewatch_signals{signal="PoisonMessage"} == 3')
    stand_in.fire("PoisonMessage", "orders", 0)
    _until(path, 'absent(queuewatch_signals{signal="PoisonMessage"})')
    assert path.next_notification(4) is None
    assert path.query('ALERTS{alertname="QueuewatchPoisonMessage",alertstate="firing"}')


def test_links_of_a_notification_are_complete(stand_in: StandIn, path: AlertPath) -> None:
    """Links lead to the runbook's heading and to the dashboard with the queue selected, URL-escaped."""
    stand_in.fire("GroupStuck", "payments & refunds.fifo", 1, severity="critical")
    _, alert = path.notification_of("QueuewatchGroupStuck", 20)
    assert alert["annotations"]["runbook_url"].endswith("#alert-name-queuewatchgroupstuck")
    assert alert["annotations"]["dashboard_url"].endswith(
        "/d/queuewatch-groups?var-job=queuewatch&var-system=aws_sqs&var-scope_id=123456789012%2Feu-west-1"
        "&var-queue=payments+%26+refunds.fifo"
    )
    assert alert["labels"]["severity"] == "critical"
    assert alert["labels"]["component"] == "queue"


def _until(path: AlertPath, expr: str) -> None:
    until(lambda: path.query(expr), expr, every_s=0.1)
