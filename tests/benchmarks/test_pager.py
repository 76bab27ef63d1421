"""Processing of the times between a fault and the pager."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks.pager_legs import Fault, Round, leg_medians, quantile
from tests.benchmarks.webhook import Notification, Notifications

FAULT = Fault("SQS: poison", "PoisonMessage", "aws_sqs", "orders", "m1", at_s=100.0, receive_count=3)
PUSHED = Round(FAULT, "push", 100.2, 100.7, None, None, 101.5, names_culprit=True)
SCRAPED = Round(FAULT, "prometheus", 100.2, 100.7, 110.0, 112.0, 112.5, names_culprit=False)


def test_the_legs_of_a_push_add_up_to_the_whole_way() -> None:
    """The legs of a push are client, job and notification."""
    assert PUSHED.legs == pytest.approx({"to Kafka": 0.2, "to the batch": 0.5, "to the webhook": 0.8})
    assert sum(PUSHED.legs.values()) == pytest.approx(PUSHED.beyond_rule_s) == pytest.approx(1.5)


def test_the_legs_through_prometheus_have_the_scrape_and_the_rule() -> None:
    """The path through Prometheus begins like a push and has two more steps."""
    assert list(SCRAPED.legs) == ["to Kafka", "to the batch", "to the scrape", "to the rule", "to the webhook"]
    assert sum(SCRAPED.legs.values()) == pytest.approx(12.5)


def test_the_wait_of_a_rule_is_not_counted() -> None:
    """A consumer may hang for 30 s; steps before the end of that wait are no leg."""
    hung = replace(PUSHED, fault=replace(FAULT, rule_waits_s=30.0), judged_s=130.7, notified_s=131.5)
    assert hung.beyond_rule_s == pytest.approx(1.5)
    assert hung.legs == pytest.approx({"to the batch": 0.7, "to the webhook": 0.8})


def test_a_missing_step_is_no_leg() -> None:
    """Events sent by HTTP were never in Kafka, so the first leg goes from the fault to the batch."""
    assert replace(PUSHED, in_kafka_s=None).legs == pytest.approx({"to the batch": 0.7, "to the webhook": 0.8})


def test_medians_are_of_the_rounds_that_have_the_leg() -> None:
    """A record that was not found does not count as zero."""
    later = replace(PUSHED, in_kafka_s=None, notified_s=105.0)
    assert leg_medians([PUSHED, later])["to Kafka"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("share", "count", "found"), [(0.5, 30, 15), (0.99, 30, 30), (0.99, 100, 99), (0.99, 101, 100), (0.5, 1, 1)]
)
def test_a_quantile_is_a_measured_value(share: float, count: int, found: int) -> None:
    """Nothing is interpolated: p99 of 30 rounds is the longest."""
    assert quantile([float(n) for n in range(count, 0, -1)], share) == found


def _notification(*queues: str) -> Notification:
    alerts = [{"status": "firing", "labels": {"alertname": "QueuewatchX", "queue": queue}} for queue in queues]
    return Notification(1.0, "firing", alerts, {"alerts": alerts})


def test_the_first_notification_about_a_queue_is_found_whenever_it_came() -> None:
    """Rounds overlap, so a notification may arrive before that of an earlier round."""
    notifications = Notifications()
    notifications.add(_notification("a"))
    notifications.add(_notification("b", "c"))
    assert notifications.first("QueuewatchX", 0.0, queue="c")[1]["labels"]["queue"] == "c"
    assert notifications.first("QueuewatchX", 0.0, queue="a")[1]["labels"]["queue"] == "a"
    with pytest.raises(TimeoutError, match="no webhook about QueuewatchX"):
        notifications.first("QueuewatchX", 0.0, queue="d")
