"""A fault at a real broker reaches the pager, with every part between them real."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.pager_pipeline import started
from tests.benchmarks.webhook import page_text
from tests.services.elasticmq import ElasticMQ
from tests.services.kafka import Kafka

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("spark_jars", "prometheus_binaries", "prometheus_servers"),
]

ARRIVES_WITHIN_S = 180.0


def test_a_poison_message_pages_by_push_and_through_prometheus(kafka: Kafka, elasticmq: ElasticMQ) -> None:
    """The pushed page has the message's id. That through Prometheus has the queue, because no label may have an id."""
    with started(kafka, elasticmq, queues=1, scrape_s=1, evaluate_s=1) as pipeline:
        fault = pipeline.application.poison(0)
        labels = {"system": "aws_sqs", "queue": fault.queue}
        pushed, _ = pipeline.pushed.first("QueuewatchPoisonMessage", ARRIVES_WITHIN_S, **labels)
        scraped, _ = pipeline.prometheus.notifications.first("QueuewatchPoisonMessage", ARRIVES_WITHIN_S, **labels)
    assert fault.culprit in page_text(pushed)
    assert fault.queue in page_text(scraped)
    assert fault.culprit not in json.dumps(scraped.body)
