"""Cases for the alerts on signals: what Prometheus reports when the judge finds something."""

from __future__ import annotations

from collections.abc import Mapping

from tests.rules.promtool import Alert, Check

SCOPE = "123456789012/eu-west-1"
IDENTITY = f'job="queuewatch",instance="a:9400",system="aws_sqs",scope_id="{SCOPE}"'
WHERE = f"aws_sqs queue orders ({SCOPE})"


def of(metric: str, queue: str = "orders", instance: str = "a:9400", **labels: str) -> str:
    """Return a series of a queue."""
    extra = "".join(f',{name}="{value}"' for name, value in labels.items())
    identity = IDENTITY.replace("a:9400", instance)
    return f'{metric}{{{identity},queue="{queue}"{extra}}}'


def signal(name: str, severity: str, queue: str = "orders", instance: str = "a:9400") -> str:
    """Return the series of a signal."""
    return of("queuewatch_signals", queue, instance, signal=name, severity=severity)


def labels(severity: str, queue: str = "orders", component: str = "queue", **extra: str) -> dict[str, str]:
    """Return the labels of an alert on a queue."""
    return {
        "job": "queuewatch",
        "system": "aws_sqs",
        "scope_id": SCOPE,
        "queue": queue,
        "severity": severity,
        "component": component,
        "rulesgroup": "queuewatch",
        **extra,
    }


def state_signal(
    name: str,
    severity: str,
    companions: Mapping[str, str],
    description: str,
    bare: str,
    component: str = "queue",
) -> tuple[Check, ...]:
    """Return checks of a signal that persists: `description` is with companion series, `bare` without.

    `{n}` in both is the number of findings.
    """
    series = signal(name, severity)
    expected = labels(severity, component=component)
    return (
        Check(
            "fires",
            "at the first evaluation that sees it, with the evidence of the other series",
            {series: "2x40", **companions},
            "0s",
            (Alert(expected, description.format(n=2)),),
        ),
        Check(
            "fires",
            "once for two replicas, with the larger count",
            {series: "1x40", signal(name, severity, instance="b:9400"): "3x40"},
            "5m",
            (Alert(expected, bare.format(n=3)),),
        ),
        Check("quiet", "another signal of the same queue", {signal("Other", severity): "1x40"}, "5m"),
        Check("quiet", "nothing is published at all", {of("queuewatch_receive_count_max"): "9x40"}, "5m"),
        Check("boundary", "a count of zero is not one", {series: "0x40"}, "5m"),
        Check("boundary", "one is", {series: "1x40"}, "5m", (Alert(expected, bare.format(n=1)),)),
        Check(
            "boundary",
            "a restart of five minutes does not end it",
            {series: "1x8 stale"},
            "6m45s",
            (Alert(expected, bare.format(n=1)),),
        ),
        Check("boundary", "a longer silence does", {series: "1x8 stale"}, "7m30s"),
    )


def _all(*pairs: tuple[str, str]) -> dict[str, str]:
    return dict(pairs)


VISIBLE = (of("queuewatch_queue_messages", state="visible"), "184x40")
IN_FLIGHT = (of("queuewatch_queue_messages", state="in_flight"), "12x40")
RECEIVES = (of("queuewatch_receive_count_max"), "5x40")
OLDEST_ALL = (of("queuewatch_oldest_message_age_seconds", scope="all"), "4000x40")
OLDEST_VISIBLE = (of("queuewatch_oldest_message_age_seconds", scope="visible"), "96x40")
OLDEST_HEALTHY = (of("queuewatch_oldest_message_age_seconds", scope="healthy"), "22x40")
HELD = (of("queuewatch_consumer_oldest_held_seconds", consumer="w1"), "1930x40")
BACKLOG = (of("queuewatch_groups", state="backlog"), "214x40")
GROUPS_IN_FLIGHT = (of("queuewatch_groups", state="in_flight"), "1x40")
BLOCKED = (of("queuewatch_groups", state="blocked"), "3x40")
HIDDEN = (of("queuewatch_groups", state="hidden"), "57x40")

ARRIVED = signal("DeadLetterArrived", "warning", "orders-dlq")
LEFT = of("queuewatch_dead_letter_expiry_seconds", "orders-dlq")


def _arrivals(n: int) -> Alert:
    text = (
        f"Messages that arrived in aws_sqs queue orders-dlq ({SCOPE}) recently: {n}. Waiting there now: unknown. Time until "
        "retention deletes the first: 2h 30m 0s."
    )
    return Alert(labels("warning", "orders-dlq", arrivals=str(n)), text)


DROPPED = signal("MessageDropped", "critical")


def _losses(expired: int | str, dropped: int | str, lost: int | str) -> Alert:
    text = (
        f"Messages of {WHERE} are being lost: {expired} expired and {dropped} dropped since counting began. Age of the oldest "
        "remaining message: unknown."
    )
    return Alert(labels("critical", lost=str(lost)), text)


def _losing(expired: str, dropped: str, firing: str) -> dict[str, str]:
    return {
        DROPPED: firing,
        of("queuewatch_messages_expired_total"): expired,
        of("queuewatch_messages_dropped_total"): dropped,
    }


SILENT = 'queuewatch_signals{job="queuewatch",instance="a:9400",signal="TelemetryStale",severity="warning"}'
HEARD = 'queuewatch_telemetry_last_event_timestamp_seconds{{job="queuewatch",instance="a:9400",collector="{}"}}'


def _stale(n: int, who: str) -> Alert:
    text = f"Silent collectors: {n} ({who}). Do not trust ages and stalls of their queues until they report again."
    own = {"job": "queuewatch", "severity": "warning", "component": "watcher", "rulesgroup": "queuewatch"}
    return Alert(own | {"collectors": str(n)}, text)


UNTRUSTED = SILENT.replace("TelemetryStale", "ClockUntrusted")


def _untrusted() -> Alert:
    text = (
        "The clock of the machine queuewatch runs on jumped, or senders date events in the future. Signals that depend on "
        "elapsed time may be late."
    )
    own = {"job": "queuewatch", "severity": "warning", "component": "watcher", "rulesgroup": "queuewatch"}
    return Alert(own, text)


SIGNAL_CASES: dict[str, tuple[Check, ...]] = {
    "PoisonMessage": state_signal(
        "PoisonMessage",
        "warning",
        _all(RECEIVES, OLDEST_ALL, OLDEST_HEALTHY),
        f"Messages of {WHERE} that keep coming back: {{n}}. Highest receive count: 5. Oldest unsettled message: 1h 6m 40s, "
        "without the suspects: 22s.",
        f"Messages of {WHERE} that keep coming back: {{n}}. Highest receive count: unknown. Oldest unsettled message: unknown, "
        "without the suspects: unknown.",
    ),
    "MessageHeldTooLong": state_signal(
        "MessageHeldTooLong",
        "warning",
        _all(HELD, IN_FLIGHT),
        f"Messages of {WHERE} in flight without a break for too long: {{n}}. Longest hold of a consumer: 32m 10s. In flight: 12.",
        f"Messages of {WHERE} in flight without a break for too long: {{n}}. Longest hold of a consumer: unknown. In "
        "flight: unknown.",
    ),
    "MessageDropped": (
        Check(
            "fires",
            "with the totals as its label",
            _losing("3x40", "4x40", "1x40"),
            "1m",
            (_losses(3, 4, 7),),
        ),
        Check(
            "fires",
            "where only one of the totals is known",
            {DROPPED: "1x40", of("queuewatch_messages_expired_total"): "3x40"},
            "1m",
            (_losses(3, "unknown", 3),),
        ),
        Check(
            "fires",
            "for a queue of a folded row, which has no totals of its own",
            {DROPPED: "1x40"},
            "1m",
            (_losses("unknown", "unknown", "unknown"),),
        ),
        Check("quiet", "old losses alone are no alert", _losing("3x40", "4x40", "_x40"), "5m"),
        Check("quiet", "an ended signal", _losing("3x40", "4x40", "1x4 stale"), "4m"),
        Check(
            "boundary",
            "before the next loss the label is the old total",
            _losing("3x8 4x32", "4x40", "1x8 2x32"),
            "2m",
            (_losses(3, 4, 7),),
        ),
        Check(
            "boundary",
            "at the next loss it is another alert, and the old one is gone",
            _losing("3x8 4x32", "4x40", "1x8 2x32"),
            "2m15s",
            (_losses(4, 4, 8),),
        ),
        Check(
            "boundary",
            "a finding that ends while the rest goes on changes nothing",
            _losing("4x40", "4x40", "2x8 1x32"),
            "3m",
            (_losses(4, 4, 8),),
        ),
    ),
    "DeadLetterArrived": (
        Check("fires", "at the first arrival", {ARRIVED: "1x40", LEFT: "9000x40"}, "0s", (_arrivals(1),)),
        Check("quiet", "dead letters that came earlier", {LEFT: "9000x40"}, "5m"),
        Check("quiet", "two minutes after its end", {ARRIVED: "3x8 stale", LEFT: "9000x60"}, "4m30s"),
        Check("boundary", "one before the second arrives", {ARRIVED: "1x8 2x32", LEFT: "9000x40"}, "2m", (_arrivals(1),)),
        Check(
            "boundary",
            "another alert when it has, and the first is gone: a changed label notifies again",
            {ARRIVED: "1x8 2x32", LEFT: "9000x40"},
            "2m15s",
            (_arrivals(2),),
        ),
        Check(
            "boundary",
            "a restart of a minute changes nothing",
            {ARRIVED: "2x8 stale _x3 2x30", LEFT: "9000x60"},
            "3m",
            (_arrivals(2),),
        ),
        Check(
            "boundary",
            "a new arrival a minute after the end counts from one at once",
            {ARRIVED: "3x8 stale _x3 1x30", LEFT: "9000x60"},
            "3m15s",
            (_arrivals(1),),
        ),
    ),
    "DeadLetterExpiring": state_signal(
        "DeadLetterExpiring",
        "critical",
        _all((of("queuewatch_dead_letter_expiry_seconds"), "9000x40"), VISIBLE),
        f"Time until retention deletes the first message of {WHERE}: 2h 30m 0s. Waiting there: 184. Open findings: {{n}}.",
        f"Time until retention deletes the first message of {WHERE}: unknown. Waiting there: unknown. Open findings: {{n}}.",
    ),
    "GroupStuck": (
        *state_signal(
            "GroupStuck",
            "critical",
            _all((of("queuewatch_group_oldest_message_age_seconds", group="g1"), "412x40"), RECEIVES, BACKLOG, GROUPS_IN_FLIGHT),
            f"Stuck groups in {WHERE}: {{n}}. Oldest message of a group: 6m 52s. Highest receive count in the queue: 5. "
            "Groups with a backlog: 214, in flight: 1.",
            f"Stuck groups in {WHERE}: {{n}}. Oldest message of a group: unknown. Highest receive count in the queue: "
            "unknown. Groups with a backlog: unknown, in flight: unknown.",
        ),
        Check(
            "quiet",
            "a group whose head takes no longer than usual is only shown",
            {signal("GroupStuck", "info"): "4x40"},
            "5m",
        ),
    ),
    "LookAheadSaturated": state_signal(
        "LookAheadSaturated",
        "critical",
        _all(HIDDEN, BLOCKED, VISIBLE),
        f"Groups hidden behind the front of {WHERE}: 57, blocked: 3. Visible messages: 184. Open findings: {{n}}.",
        f"Groups hidden behind the front of {WHERE}: unknown, blocked: unknown. Visible messages: unknown. Open findings: {{n}}.",
    ),
    "ConcurrencyCollapsed": (
        *state_signal(
            "ConcurrencyCollapsed",
            "warning",
            _all(GROUPS_IN_FLIGHT, BACKLOG, OLDEST_VISIBLE),
            f"Groups of {WHERE} being processed: 1, with a backlog: 214. Oldest visible message: 1m 36s. Open findings: {{n}}.",
            f"Groups of {WHERE} being processed: unknown, with a backlog: unknown. Oldest visible message: unknown. "
            f"Open findings: {{n}}.",
        ),
        Check(
            "quiet",
            "a pause of consumers on a schedule is only shown",
            {signal("ConcurrencyCollapsed", "info"): "4x40"},
            "5m",
        ),
    ),
    "NoisyGroup": state_signal(
        "NoisyGroup",
        "info",
        _all(IN_FLIGHT, BACKLOG),
        f"Groups of {WHERE} that take an unfair share: {{n}}. In flight: 12. Groups with a backlog: 214.",
        f"Groups of {WHERE} that take an unfair share: {{n}}. In flight: unknown. Groups with a backlog: unknown.",
    ),
    "SlowConsumer": (
        *state_signal(
            "SlowConsumer",
            "warning",
            _all(HELD, IN_FLIGHT, VISIBLE),
            f"Slow consumers of {WHERE}: {{n}}. Longest hold: 32m 10s. In flight: 12, visible: 184.",
            f"Slow consumers of {WHERE}: {{n}}. Longest hold: unknown. In flight: unknown, visible: unknown.",
        ),
        Check(
            "quiet",
            "what the broker's own strategies would say is only shown",
            {signal("SlowConsumer", "info"): "4x40"},
            "5m",
        ),
    ),
    "BatchRetryStorm": state_signal(
        "BatchRetryStorm",
        "warning",
        _all(
            (of("queuewatch_messages_received_total"), "990x40"),
            (of("queuewatch_messages_deleted_total"), "200x40"),
            RECEIVES,
        ),
        f"Many deliveries of {WHERE} repeat messages of failed batches. Received so far: 990, acknowledged: 200. Highest receive "
        "count: 5. Open findings: {n}.",
        f"Many deliveries of {WHERE} repeat messages of failed batches. Received so far: unknown, acknowledged: unknown. Highest "
        "receive count: unknown. Open findings: {n}.",
    ),
    "QueueStalled": state_signal(
        "QueueStalled",
        "critical",
        _all(VISIBLE, OLDEST_VISIBLE, IN_FLIGHT, RECEIVES),
        f"{WHERE} has 184 visible message(s) and settles none. Oldest visible: 1m 36s. In flight: 12. Highest receive count: 5. "
        "Open findings: {n}.",
        f"{WHERE} has unknown visible message(s) and settles none. Oldest visible: unknown. In flight: unknown. Highest receive "
        "count: unknown. Open findings: {n}.",
    ),
    "QueueFailing": state_signal(
        "QueueFailing",
        "critical",
        _all(VISIBLE, (of("queuewatch_poison_messages"), "31x40"), (of("queuewatch_messages_dead_lettered_total"), "7x40")),
        f"Many deliveries of {WHERE} end without being settled. Poison suspects: 31. Dead-lettered so far: 7. "
        "Visible: 184. Open findings: {n}.",
        f"Many deliveries of {WHERE} end without being settled. Poison suspects: unknown. Dead-lettered so far: "
        "unknown. Visible: unknown. Open findings: {n}.",
    ),
    "QueueLagging": state_signal(
        "QueueLagging",
        "warning",
        _all(VISIBLE, OLDEST_VISIBLE),
        f"The consumers of {WHERE} do not keep up. Visible messages: 184. Oldest visible: 1m 36s. Open findings: {{n}}.",
        f"The consumers of {WHERE} do not keep up. Visible messages: unknown. Oldest visible: unknown. Open findings: {{n}}.",
    ),
    "WindowTooShort": state_signal(
        "WindowTooShort",
        "warning",
        _all(RECEIVES),
        f"Deliveries of {WHERE} outlive their visibility window. Highest receive count: 5. Open findings: {{n}}.",
        f"Deliveries of {WHERE} outlive their visibility window. Highest receive count: unknown. Open findings: {{n}}.",
    ),
    "QueueSilent": state_signal(
        "QueueSilent",
        "info",
        _all((of("queuewatch_messages_sent_total"), "5000x40")),
        f"No messages arrive in {WHERE} any more. Messages sent so far: 5000. Open findings: {{n}}.",
        f"No messages arrive in {WHERE} any more. Messages sent so far: unknown. Open findings: {{n}}.",
    ),
    "QueuePurged": state_signal(
        "QueuePurged",
        "info",
        _all(VISIBLE, (of("queuewatch_messages_sent_total"), "5000x40")),
        f"A purge of {WHERE} removed messages that nobody had processed. Visible messages now: 184. Messages sent so far: 5000. "
        "Open findings: {n}.",
        f"A purge of {WHERE} removed messages that nobody had processed. Visible messages now: unknown. Messages sent so far: "
        "unknown. Open findings: {n}.",
    ),
    "RedriveFailed": state_signal(
        "RedriveFailed",
        "warning",
        _all(VISIBLE),
        f"The last redrive of {WHERE} failed. Messages left: 184. Open findings: {{n}}.",
        f"The last redrive of {WHERE} failed. Messages left: unknown. Open findings: {{n}}.",
    ),
    "RedriveStalled": state_signal(
        "RedriveStalled",
        "warning",
        _all(VISIBLE),
        f"The redrive of {WHERE} is running but moves nothing. Messages left: 184. Open findings: {{n}}.",
        f"The redrive of {WHERE} is running but moves nothing. Messages left: unknown. Open findings: {{n}}.",
    ),
    "QueueMisconfigured": state_signal(
        "QueueMisconfigured",
        "info",
        _all(
            (of("queuewatch_messages_dead_lettered_total"), "7x40"),
            (of("queuewatch_messages_expired_total"), "2x40"),
            (of("queuewatch_messages_dropped_total"), "1x40"),
        ),
        f"Wrong settings of {WHERE}: {{n}}. Dead-lettered so far: 7, expired: 2, dropped: 1.",
        f"Wrong settings of {WHERE}: {{n}}. Dead-lettered so far: unknown, expired: unknown, dropped: unknown.",
    ),
    "TelemetryStale": (
        Check(
            "fires",
            "with the silent collectors by name, the longest first",
            {SILENT: "2x40", HEARD.format("sqs-1"): "60x40", HEARD.format("amq"): "0x40", HEARD.format("ok"): "599x40"},
            "10m",
            (_stale(2, "amq (10m 0s), sqs-1 (9m 0s)"),),
        ),
        Check(
            "fires",
            "with a limit below a minute, as configured",
            {SILENT: "1x4", HEARD.format("sqs-1"): "0x4", HEARD.format("ok"): "30x4"},
            "45s",
            (_stale(1, "sqs-1 (45s)"),),
        ),
        Check("quiet", "a silent collector the judge does not mind", {HEARD.format("sqs-1"): "0x40"}, "10m"),
        Check("boundary", "a count of zero is not one", {SILENT: "0x40"}, "5m"),
        Check("boundary", "one is", {SILENT: "1x40"}, "5m", (_stale(1, "unknown"),)),
        Check("boundary", "one before the second", {SILENT: "1x8 2x32"}, "2m", (_stale(1, "unknown"),)),
        Check(
            "boundary",
            "another alert when the second falls silent: a changed label notifies again",
            {SILENT: "1x8 2x32"},
            "2m15s",
            (_stale(2, "unknown"),),
        ),
        Check("boundary", "a restart of two minutes does not end it", {SILENT: "1x8 stale"}, "3m45s", (_stale(1, "unknown"),)),
        Check("boundary", "a longer silence does", {SILENT: "1x8 stale"}, "4m15s"),
    ),
    "ClockUntrusted": (
        Check("fires", "at the first evaluation that sees it", {UNTRUSTED: "1x40"}, "0s", (_untrusted(),)),
        Check("quiet", "another signal", {SILENT: "1x40"}, "5m"),
        Check("boundary", "a count of zero is not one", {UNTRUSTED: "0x40"}, "5m"),
        Check("boundary", "one is", {UNTRUSTED: "1x40"}, "5m", (_untrusted(),)),
    ),
    "TelemetryPartial": state_signal(
        "TelemetryPartial",
        "info",
        _all((of("queuewatch_telemetry_coverage_ratio"), "0.85x40"), (of("queuewatch_messages_reconciled_total"), "4x40")),
        (
            f"queuewatch tracks 85% of the messages that the broker counts in {WHERE}. Removed from tracking "
            f"without a reported end: 4. Open findings: {{n}}."
        ),
        f"queuewatch tracks unknown of the messages that the broker counts in {WHERE}. Removed from tracking "
        "without a reported end: unknown. Open findings: {n}.",
        component="watcher",
    ),
}
