"""The real parts between a fault and the two webhooks, with a client of SQS that can cause faults."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.alert_latency import AlertPath, alert_path
from tests.benchmarks.pager_faults import SqsApplication
from tests.benchmarks.webhook import Notifications, paged_alertmanager
from tests.e2e.service import Service, running
from tests.services.elasticmq import ElasticMQ
from tests.services.kafka import Kafka
from tests.services.prometheus import Server

KNOWN_WITHIN_S: Final = 400.0


@dataclass(frozen=True)
class Pipeline:
    """All running parts between the faults and the two webhooks."""

    bootstrap: str
    topic: str
    folder: Path
    service: Service
    application: SqsApplication
    pushed: Notifications
    prometheus: AlertPath


@contextmanager
def started(
    broker: Kafka,
    sqs: ElasticMQ,
    *,
    queues: int,
    scrape_s: int,
    evaluate_s: float,
    collect: Mapping[str, Any] | None = None,
    http: Mapping[str, Any] | None = None,
) -> Iterator[Pipeline]:
    """Start all parts, and wait until the job knows the application's queues and Prometheus the job.

    Args:
        broker: has the topic of the events.
        sqs: has the application's queues.
        queues: how many there are for each kind of fault.
        scrape_s: how often Prometheus scrapes.
        evaluate_s: how often it evaluates the rules.
        collect: the collectors of other brokers, as in the configuration's `collect`.
        http: the configuration's `http`.

    Raises:
        ServiceUnavailable: Prometheus or Alertmanager is missing.
    """
    with ExitStack() as stack:
        alertmanager, pushed = stack.enter_context(paged_alertmanager())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="queuewatch-pager-", ignore_cleanup_errors=True)))
        topic = broker.create_topic(partitions=2)
        collectors = {"sqs": {"endpoint_url": sqs.endpoint}, **(collect or {})}
        service = stack.enter_context(running(folder, config(broker, topic, collectors, alertmanager, http or {})))
        application = SqsApplication(sqs.endpoint, f"kafka://{broker.bootstrap}/{topic}")
        stack.callback(application.close)
        names = application.prepare(range(queues))
        for kind in collectors:
            stack.enter_context(collecting(folder, kind))
        service.wait(lambda metrics: _known(metrics, names), KNOWN_WITHIN_S)
        prometheus = stack.enter_context(alert_path(f"{service.url}/metrics", scrape_s=scrape_s, evaluate_s=evaluate_s))
        prometheus.wait_for_scrape()
        yield Pipeline(broker.bootstrap, topic, folder, service, application, pushed, prometheus)


def config(
    broker: Kafka, topic: str, collectors: Mapping[str, Any], alertmanager: Server, http: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the service's configuration: defaults, except for addresses, `http`, local Spark and logs."""
    return {
        "spark": {"master": "local[2]", "checkpoint_dir": "checkpoint", "driver_memory": "1g"},
        "source": {"kafka": {"bootstrap_servers": [broker.bootstrap], "topics": [topic]}, "spool": {"folder": "spool"}},
        "http": dict(http),
        "signal_log": {"path": "signals.ndjson"},
        "alertmanager": {"destinations": [{"url": alertmanager.url}]},
        "collect": {"to": f"kafka://{broker.bootstrap}/{topic}", **collectors},
        "log": {"format": "json"},
    }


@contextmanager
def collecting(folder: Path, kind: str) -> Iterator[None]:
    """Run `queuewatch collect KIND` beside the service inside the with block, with the same configuration file."""
    command = [sys.executable, "-m", "streaming.cli.main", "collect", kind, "--config", str(folder / "queuewatch.yaml")]
    login = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}
    with (folder / f"collect-{kind}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=os.environ | login)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def _known(metrics: Mapping[str, float], queues: Sequence[str]) -> bool:
    text = "".join(name for name in metrics if name.startswith("queuewatch_queue_messages{"))
    return all(f'queue="{queue}"' in text for queue in queues)
