"""Checks of queuewatch itself: is it up, does it get telemetry, does it keep up."""

from __future__ import annotations

from alerts.entry import Check

_PREPARE = """\
export JOB={job:<35} # label "job" of the alert
export QUEUE='orders'                          # label "queue" of the alert, when it has one
export QUEUEWATCH='http://127.0.0.1:9400'      # address of this queuewatch
export PROMETHEUS='http://127.0.0.1:9090'
export NAMESPACE='queuewatch'                  # where it runs in Kubernetes
export KAFKA='localhost:9092' TOPIC='queuewatch-events'
series() {{ curl -fsS "$QUEUEWATCH/metrics" | grep -E "^$1"; }}"""

_JOB = "app.kubernetes.io/name=queuewatch,app.kubernetes.io/component=job"
_COLLECTORS = "app.kubernetes.io/name=queuewatch,app.kubernetes.io/component=collector"
"""The labels in deploy/kubernetes."""
_KUBECTL = 'kubectl --namespace "$NAMESPACE"'
_LAST_LINES = "--tail 200 --prefix"


def prepare(job: str) -> str:
    """Return what readers paste before the checks; `job` is the job label under which Prometheus scrapes queuewatch."""
    return _PREPARE.format(job=f"'{job}'")


def ready(look_for: str) -> Check:
    return Check("Whether it is ready, and if not, why", 'curl -sS "$QUEUEWATCH/-/ready"; echo', look_for)


def scrape(look_for: str) -> Check:
    return Check(
        "What Prometheus says about the scrape",
        'curl -fsS "$PROMETHEUS/api/v1/targets?state=active" | jq --arg job "$JOB" \'.data.activeTargets[] | '
        "select(.labels.job == $job) | {scrapeUrl, health, lastError, lastScrape}'",
        look_for,
    )


def logs(look_for: str) -> Check:
    return Check(
        "The service's log",
        f"{_KUBECTL} logs --selector {_JOB} --all-containers {_LAST_LINES}",
        look_for,
    )


def previous_logs(look_for: str) -> Check:
    return Check(
        "The service's log before its last restart",
        f"{_KUBECTL} logs --selector {_JOB} --all-containers {_LAST_LINES} --previous",
        look_for,
    )


def pods(look_for: str) -> Check:
    return Check(
        "Restarts, memory kills and pending volumes",
        f"{_KUBECTL} describe pods --selector {_JOB}",
        look_for,
    )


def collector_pods(look_for: str) -> Check:
    return Check(
        "The collectors' restarts, memory kills and scheduling",
        f"{_KUBECTL} describe pods --selector {_COLLECTORS}",
        look_for,
    )


def collectors(look_for: str) -> Check:
    return Check(
        "The last event of every collector",
        'series queuewatch_telemetry_last_event_timestamp_seconds | awk -v now="$(date +%s)" '
        "'{printf \"%.0f s ago %s\\n\", now - $NF, $0}'",
        look_for,
    )


def collector_logs(look_for: str) -> Check:
    return Check(
        "The collectors' logs",
        f"{_KUBECTL} logs --selector {_COLLECTORS} {_LAST_LINES}",
        look_for,
    )


def pipeline(look_for: str) -> Check:
    return Check("Lag, batch duration and state", "series queuewatch_pipeline_", look_for)


def events(look_for: str) -> Check:
    return Check(
        "Events by result, and the reasons of the invalid ones",
        "series 'queuewatch_events_(invalid_)?total'",
        look_for,
    )


def coverage(look_for: str) -> Check:
    return Check(
        "The queues with too few or too many tracked messages",
        "series queuewatch_telemetry_coverage_ratio | awk '$NF < 0.9 || $NF > 1.1'",
        look_for,
    )


def reconciled(look_for: str) -> Check:
    return Check(
        "Messages removed from tracking without a reported end",
        "series queuewatch_messages_reconciled_total | awk '$NF > 0'",
        look_for,
    )


def folded(look_for: str) -> Check:
    return Check("Items left out by a cap", "series queuewatch_folded_total", look_for)


def skew(look_for: str) -> Check:
    return Check(
        "The queues whose senders' clocks run ahead",
        "series queuewatch_telemetry_clock_skew_seconds | awk '{print $NF, $0}' | sort -g | tail",
        look_for,
    )


def consumer_lag(look_for: str) -> Check:
    return Check(
        "The telemetry topic's end offsets, twice, to see how fast it grows",
        'for i in 1 2; do kafka-get-offsets.sh --bootstrap-server "$KAFKA" --topic "$TOPIC"; sleep 10; done',
        look_for,
    )


def topic(look_for: str) -> Check:
    return Check(
        "The telemetry topic's partitions and retention",
        'kafka-topics.sh --bootstrap-server "$KAFKA" --describe --topic "$TOPIC"; kafka-configs.sh '
        '--bootstrap-server "$KAFKA" --describe --topic "$TOPIC"',
        look_for,
    )


def newest_events(look_for: str) -> Check:
    return Check(
        "The newest telemetry records",
        ('kafka-console-consumer.sh --bootstrap-server "$KAFKA" --topic "$TOPIC" --max-messages 3 --timeout-ms 10000'),
        look_for,
    )


def config(look_for: str) -> Check:
    return Check(
        "A summary of the service's configuration",
        f"{_KUBECTL} exec statefulset/queuewatch -- queuewatch check-config /etc/queuewatch/queuewatch.yaml",
        look_for,
    )


def clocks(look_for: str) -> Check:
    return Check(
        "The clock of the machine that queuewatch runs on; run it there",
        "timedatectl status | grep -iE 'synchronized|NTP|Universal'",
        look_for,
    )
