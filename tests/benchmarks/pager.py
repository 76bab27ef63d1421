"""From a fault at a real broker to the pager, with every part real.

An ordinary client of ElasticMQ, ActiveMQ or workerd causes the fault. Events from the library or the collector go through
Kafka (or HTTP ingest) to the Spark job, and from there to a webhook on two paths at once: pushed directly to one
Alertmanager, and through `/metrics`, Prometheus and a second Alertmanager. Each time comes from the program that did the
step.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition

from alerts.config import AlertRulesConfig
from streaming.spark.runtime import RuntimeUnavailable, connector_jars
from tests.benchmarks.alert_latency import epoch_s, first_sample_s
from tests.benchmarks.figures import Figure, Run
from tests.benchmarks.pager_faults import ActiveMQApplication, Cause, workers
from tests.benchmarks.pager_legs import Fault, Round, Way, leg_medians, quantile
from tests.benchmarks.pager_pipeline import Pipeline, started
from tests.benchmarks.webhook import page_text
from tests.services import activemq, elasticmq, kafka
from tests.services.node import Node, find_node
from tests.services.process import ServiceUnavailable

SCRAPED_EVERY_S: Final = 15
"""How often Prometheus scrapes: the interval in its sample configuration. It evaluates the rules as often as these say."""
BETWEEN_ROUNDS_S: Final = 4.0
ARRIVES_WITHIN_S: Final = 120.0
PROMISED_PUSH_S, PROMISED_PROMETHEUS_S = 2.0, 20.0


def measure(run: Run, *, rounds: int) -> None:
    """Run `rounds` rounds of each kind of fault; rounds overlap."""
    try:
        connector_jars()
        with ExitStack() as stack:
            pipeline, causes = stack.enter_context(warmed_up(run, rounds))
            faults = caused(run, causes, rounds)
            found = [one for way in ("push", "prometheus") for one in arrived(run, pipeline, faults, way)]
    except (ServiceUnavailable, RuntimeUnavailable) as missing:
        run.leave_out("pager", str(missing))
        return
    for what in dict.fromkeys(fault.what for fault in faults):
        for way, promised_s in (("push", PROMISED_PUSH_S), ("prometheus", PROMISED_PROMETHEUS_S)):
            report(run, what, [r for r in found if r.fault.what == what and r.way == way], promised_s, rounds)


def report(run: Run, what: str, rounds: Sequence[Round], promised_s: float, wanted: int) -> None:
    """Add the median and the 99th percentile of the whole path, with the legs as detail."""
    if not rounds:
        run.fail("pager", f"{what}: no notification arrived")
        return
    way, waits_s = rounds[0].way, rounds[0].fault.rule_waits_s
    by = "pushed" if way == "push" else f"through Prometheus, every {SCRAPED_EVERY_S} s"
    beyond = f", beyond the rule's {waits_s:.0f} s" if waits_s else ""
    whole = [one.beyond_rule_s for one in rounds]
    legs = {leg: round(seconds, 2) for leg, seconds in leg_medians(rounds).items()}
    named = sum(one.names_culprit for one in rounds)
    detail = {"rounds": len(rounds), "missing": wanted - len(rounds), "legs_median_s": legs, "culprit_named": named}
    detail["seconds"] = [round(seconds, 2) for seconds in whole]
    key = f"pager.{rounds[0].fault.system}.{rounds[0].fault.signal}.{way}"
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        words = f"fault → pager, {what}, {by}{beyond}, {name}"
        run.add(Figure(f"{key}.{name}", words, quantile(whole, share), "s", at_most=promised_s, detail=detail))
    run.say(f"      legs (medians, s): {legs}; culprit in the text: {named} of {len(rounds)}")
    if len(rounds) < wanted:
        run.fail("pager", f"{what}: only {len(rounds)} of {wanted} notifications {by} arrived")


@contextmanager
def warmed_up(run: Run, rounds: int) -> Iterator[tuple[Pipeline, list[Cause]]]:
    """Start everything and warm up with one fault of each kind. Raises `ServiceUnavailable`, `RuntimeError`."""
    token = secrets.token_hex(8)
    with ExitStack() as stack:
        broker = stack.enter_context(kafka.start(log_message_timestamp_type="LogAppendTime"))
        sqs = stack.enter_context(elasticmq.start())
        mq = stack.enter_context(activemq.start())
        os.environ["QUEUEWATCH_HTTP__INGEST__TOKEN"] = token
        stack.callback(os.environ.pop, "QUEUEWATCH_HTTP__INGEST__TOKEN", None)
        run.say("    waiting for the job, and for the collector to know the queues")
        pipeline = stack.enter_context(
            started(
                broker,
                sqs,
                queues=rounds + 1,
                scrape_s=SCRAPED_EVERY_S,
                evaluate_s=AlertRulesConfig().interval_s,
                collect={"activemq": {"addresses": [f"stomp://{mq.host}:{mq.stomp_port}"]}},
                http={"ingest": {"enabled": True}},
            )
        )
        stack.enter_context(pipeline.application.business())
        causes: list[Cause] = [pipeline.application.poison, pipeline.application.hang, ActiveMQApplication(mq).poison]
        if node := _node(run):
            causes.append(stack.enter_context(workers(node, pipeline.service.url, token, rounds + 1)).poison)
        for cause in causes:
            fault = cause(rounds)
            pipeline.pushed.first(f"Queuewatch{fault.signal}", ARRIVES_WITHIN_S, queue=fault.queue)
            run.say(f"    warm: {fault.what}")
        yield pipeline, causes


def caused(run: Run, causes: Sequence[Cause], rounds: int) -> list[Fault]:
    """Cause the faults, each round at another phase between two scrapes. Raises what a cause raised."""
    futures: list[Future[Fault]] = []
    with ThreadPoolExecutor(max_workers=4 * len(causes)) as pool:
        for number in range(rounds):
            futures += [pool.submit(cause, number) for cause in causes]
            time.sleep(BETWEEN_ROUNDS_S + (number * 0.618) % 1)
            if number % 10 == 9:
                run.say(f"    {number + 1} of {rounds} rounds")
    return [future.result() for future in futures]


def arrived(run: Run, pipeline: Pipeline, faults: Sequence[Fault], way: Way) -> Iterator[Round]:
    """Yield the rounds whose notification arrived; log the others."""
    notifications = pipeline.pushed if way == "push" else pipeline.prometheus.notifications
    appended, judged = in_kafka(pipeline, faults), in_signal_log(pipeline.folder)
    for fault in faults:
        due_s = fault.at_s + fault.rule_waits_s + ARRIVES_WITHIN_S
        try:
            notification, alert = notifications.first(
                f"Queuewatch{fault.signal}", max(1.0, due_s - time.time()), system=fault.system, queue=fault.queue
            )
        except TimeoutError as missing:
            run.say(f"    {missing}")
            continue
        judged_s = judged.get((fault.signal, fault.queue)) or logged_at_s(pipeline.folder, fault)
        through = way == "prometheus"
        yield Round(
            fault,
            way,
            in_kafka_s=appended.get(fault.culprit),
            judged_s=judged_s,
            scraped_s=first_sample_s(pipeline.prometheus, fault.signal, alert["labels"]) if through else None,
            evaluated_s=epoch_s(alert["startsAt"]) if through else None,
            notified_s=notification.at_s,
            names_culprit=fault.culprit in page_text(notification),
        )


def in_kafka(pipeline: Pipeline, faults: Sequence[Fault]) -> dict[str, float]:
    """Return by culprit when the broker appended the record with the receive that matters, in epoch seconds."""
    wanted = {(fault.culprit, fault.receive_count) for fault in faults}
    consumer = KafkaConsumer(bootstrap_servers=pipeline.bootstrap)
    try:
        partitions = [TopicPartition(pipeline.topic, n) for n in consumer.partitions_for_topic(pipeline.topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        found: dict[str, float] = {}
        ends = consumer.end_offsets(partitions)
        # The healthy queue adds records all the time, so reading ends at the offsets known at the beginning.
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for record in chain.from_iterable(consumer.poll(timeout_ms=1_000).values()):
                for event in _events(record.value):
                    message_id = str(event.get("message_id"))
                    if event["type"] == "received" and (message_id, event.get("receive_count", 1)) in wanted:
                        found.setdefault(message_id, record.timestamp / 1000)
        return found
    finally:
        consumer.close()


def logged_at_s(folder: Path, fault: Fault) -> float:
    """Return when the fault's signal was judged; its line may be written a moment after it was pushed."""
    until_s = time.monotonic() + 10
    while True:
        at_s = in_signal_log(folder).get((fault.signal, fault.queue))
        if at_s is not None:
            return at_s
        if time.monotonic() > until_s:
            raise RuntimeError(f"{fault.signal} of {fault.queue} was notified, but is not in the signal log")
        time.sleep(0.1)


def in_signal_log(folder: Path) -> dict[tuple[str, str], float]:
    """Return by signal and queue when the batch began in which it first fired, in epoch seconds."""
    found: dict[tuple[str, str], float] = {}
    for line in (folder / "signals.ndjson").read_text(encoding="utf-8").splitlines():
        change = json.loads(line)
        if change["status"] == "firing":
            found.setdefault((change["signal"], change["queue"]), change["at"] / 1000)
    return found


def _events(value: bytes) -> list[dict[str, Any]]:
    text = value.decode()
    found = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines() if line]
    return list(found)


def _node(run: Run) -> Node | None:
    try:
        return find_node()
    except ServiceUnavailable as missing:
        run.say(f"    without Cloudflare: {missing.reason}")
        return None
