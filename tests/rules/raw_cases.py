"""Cases for the alerts on raw series: limits, durations, absence."""

from __future__ import annotations

from tests.rules.promtool import Alert, Check
from tests.rules.signal_cases import WHERE, labels, of

JOB = 'job="queuewatch",instance="a:9400"'
UP = f"up{{{JOB}}}"
LAST = f"queuewatch_pipeline_last_batch_timestamp_seconds{{{JOB}}}"
FIXED = {"job": "queuewatch", "component": "watcher", "rulesgroup": "queuewatch"}


def job(metric: str, **extra: str) -> str:
    """Return a series of the job itself."""
    more = "".join(f',{name}="{value}"' for name, value in extra.items())
    return f"{metric}{{{JOB}{more}}}"


AGE = of("queuewatch_oldest_message_age_seconds", scope="visible")


def _old(age: str, visible: str = "unknown", drain: str = "unknown", cloudwatch: str = "unknown") -> Alert:
    text = (
        f"The oldest message a consumer could receive from {WHERE} has waited {age}. Visible messages: {visible}. Time to drain: "
        f"{drain}. Age CloudWatch would show: {cloudwatch}."
    )
    return Alert(labels("warning"), text)


LAGGING = of("queuewatch_queue_status", status="lagging")
STALE = of("queuewatch_queue_status", status="stale")
QUEUE_STALE = Alert(
    labels("info"),
    f"There has been no telemetry about {WHERE} recently. Its other alerts are inhibited until telemetry arrives again.",
)
HEARD = job("queuewatch_telemetry_last_event_timestamp_seconds", collector="sqs-1")


def _silent(ago: str) -> Alert:
    text = f"Collector sqs-1 sent its last event {ago} ago. The values of its queues are equally old."
    return Alert({**FIXED, "collector": "sqs-1", "severity": "warning"}, text)


COVERAGE = of("queuewatch_telemetry_coverage_ratio")


def _uncovered(share: str, tracked: str = "unknown") -> Alert:
    text = (
        f"The {tracked} tracked message(s) of {WHERE} are {share} of the broker's count. Poison messages, stuck groups and ages "
        "of this queue are incomplete."
    )
    return Alert(labels("warning", component="watcher"), text)


def _events(accepted: str, invalid: str, late: str) -> dict[str, str]:
    found = {"accepted": accepted, "invalid": invalid, "late": late}
    return {job("queuewatch_events_total", result=result): values for result, values in found.items()}


def _invalid(share: str) -> Alert:
    text = (
        f"{share} of the events cannot be read or are beyond a limit. The reasons are in queuewatch_events_invalid_total: those "
        "beginning with too_many are limits. Unreadable events are in quarantine."
    )
    return Alert({**FIXED, "severity": "warning"}, text)


def _late(share: str) -> Alert:
    text = f"{share} of the events arrive later than the configured lateness. Messages with only late events are not tracked."
    return Alert({**FIXED, "severity": "warning"}, text)


SKEW = of("queuewatch_telemetry_clock_skew_seconds")


def _skewed(ahead: str) -> Alert:
    text = f"The clock of a sender of {WHERE} is {ahead} ahead. The ages of its messages are too low by the same amount."
    return Alert(labels("warning", component="watcher"), text)


DOWN = Alert(
    {**FIXED, "instance": "a:9400", "severity": "critical"},
    "Prometheus cannot scrape a:9400 of queuewatch. No queue alert can fire until it is back.",
)
ABSENT = Alert(
    {**FIXED, "severity": "critical"},
    "No target of job queuewatch is known to Prometheus. No queue is being watched.",
)
NOT_PUBLISHING = Alert(
    {**FIXED, "instance": "a:9400", "severity": "critical"},
    "a:9400 is up but has published no batch since it started. No queue is being watched.",
)


def _no_batch(age: str) -> Alert:
    text = f"The last batch of a:9400 of queuewatch is {age} old. No signal begins or ends until the next batch."
    return Alert({**FIXED, "instance": "a:9400", "severity": "critical"}, text)


LAG = job("queuewatch_pipeline_lag_seconds")
READ = job("queuewatch_events_total", result="accepted")


def _lag(age: str) -> Alert:
    text = f"Events are {age} old when they are published. Alerts on queues are late by the same time."
    return Alert({**FIXED, "severity": "warning"}, text)


WAITING = job("queuewatch_pipeline_lag_records")


def _behind(waiting: str) -> Alert:
    return Alert({**FIXED, "severity": "warning"}, f"{waiting} records are waiting in the source and their number is growing.")


RESETS = job("queuewatch_pipeline_offset_resets_total")
LOST = Alert(
    {**FIXED, "severity": "warning"},
    "Kafka records or spool files were deleted before queuewatch read them, or a spool file was too large. "
    "The data is incomplete since then.",
)


def _lost_files(reason: str) -> str:
    return job("queuewatch_pipeline_lost_files_total", reason=reason)


def _lost_records(partition: str) -> str:
    return job("queuewatch_pipeline_lost_records_total", topic="telemetry", partition=partition)


def _capped(what: str) -> Alert:
    text = f"queuewatch leaves out {what} because of a cap. Counts are complete, lists of ids are not."
    return Alert({**FIXED, "what": what, "severity": "warning"}, text)


def _folded(what: str) -> str:
    return job("queuewatch_folded_total", what=what)


RAW_CASES: dict[str, tuple[Check, ...]] = {
    "MessageTooOld": (
        Check(
            "fires",
            "with what else is known about the backlog",
            {
                AGE: "7200x40",
                of("queuewatch_queue_messages", state="visible"): "184x40",
                of("queuewatch_time_to_drain_seconds"): "600x40",
                of("queuewatch_oldest_message_age_seconds", scope="cloudwatch"): "30x40",
            },
            "5m",
            (_old("2h 0m 0s", "184", "10m 0s", "30s"),),
        ),
        Check(
            "fires",
            "with a lower bound marked as one",
            {
                AGE: "7200x40",
                of("queuewatch_oldest_message_age_exact", scope="visible"): "0x40",
                of("queuewatch_oldest_message_age_seconds", scope="cloudwatch"): "30x40",
                of("queuewatch_oldest_message_age_exact", scope="cloudwatch"): "0x40",
            },
            "5m",
            (_old("at least 2h 0m 0s", cloudwatch="at least 30s"),),
        ),
        Check(
            "quiet",
            "what is in flight does not count",
            {of("queuewatch_oldest_message_age_seconds", scope="all"): "90000x40"},
            "9m",
        ),
        Check(
            "quiet",
            "a dead letter waits for a person",
            {AGE: "7200x40", of("queuewatch_queue_info", kind="standard", is_dead_letter_queue="true"): "1x40"},
            "9m",
        ),
        Check("boundary", "a quarter of an hour sharp is not too old", {AGE: "900x40"}, "9m"),
        Check("boundary", "a second more is", {AGE: "901x40"}, "9m", (_old("15m 1s"),)),
        Check("boundary", "not for less than five minutes", {AGE: "901x40"}, "4m45s"),
        Check("boundary", "for five minutes", {AGE: "901x40"}, "5m", (_old("15m 1s"),)),
    ),
    "QueueStale": (
        Check("fires", "at once: it only holds back others", {STALE: "1x40"}, "0s", (QUEUE_STALE,)),
        Check("quiet", "a queue that is reported on", {STALE: "0x40", LAGGING: "1x40"}, "5m"),
        Check(
            "fires",
            "during a restart, like the alerts it holds back",
            {STALE: "1x8 stale"},
            "4m30s",
            (QUEUE_STALE,),
        ),
        Check("boundary", "still at its last evaluation", {STALE: "1x8 0x30"}, "2m", (QUEUE_STALE,)),
        Check("boundary", "it ends at once", {STALE: "1x8 0x30"}, "2m15s"),
        Check("quiet", "a queue that is back, without series of 0", {STALE: "1x8 stale", LAGGING: "_x9 1x30"}, "2m15s"),
    ),
    "CollectorSilent": (
        Check("fires", "while its time stamp stays", {HEARD: "0x100"}, "20m", (_silent("20m 0s"),)),
        Check("quiet", "a collector that reports", {HEARD: "0+15x100"}, "20m"),
        Check(
            "quiet",
            "queuewatch catches up after an outage: what the collector sent since has not been read",
            {HEARD: "0x100", LAG: "3600-30x100", READ: "0+900x100"},
            "20m",
        ),
        Check(
            "fires",
            "queuewatch was behind when the last events came, and no more came",
            {HEARD: "0x100", LAG: "3600x100", READ: "900x100"},
            "20m",
            (_silent("20m 0s"),),
        ),
        Check("boundary", "a minute after the limit was passed, less a step", {HEARD: "0x100"}, "11m"),
        Check("boundary", "a minute after the limit was passed", {HEARD: "0x100"}, "11m15s", (_silent("11m 15s"),)),
    ),
    "CoverageLow": (
        Check(
            "fires",
            "with the number of tracked messages",
            {
                COVERAGE: "0.2x200",
                of("queuewatch_tracked_messages", state="visible"): "90x200",
                of("queuewatch_tracked_messages", state="in_flight"): "10x200",
            },
            "31m",
            (_uncovered("20%", "100"),),
        ),
        Check("quiet", "a queue that is tracked whole", {COVERAGE: "1x200"}, "40m"),
        Check(
            "quiet",
            "known by counts alone",
            {COVERAGE: "0x200", of("queuewatch_telemetry_basis", basis="counts"): "1x200"},
            "40m",
        ),
        Check("fires", "tracked and not there", {COVERAGE: "2.01x200"}, "40m", (_uncovered("201%"),)),
        Check("boundary", "twice as many is borne", {COVERAGE: "2x200"}, "40m"),
        Check("boundary", "half is enough", {COVERAGE: "0.5x200"}, "40m"),
        Check("boundary", "less is not", {COVERAGE: "0.49x200"}, "40m", (_uncovered("49%"),)),
        Check("boundary", "not for less than half an hour", {COVERAGE: "0.49x200"}, "29m45s"),
        Check("boundary", "for half an hour", {COVERAGE: "0.49x200"}, "30m", (_uncovered("49%"),)),
    ),
    "InvalidEvents": (
        Check("fires", "one event in ten", _events("0+90x100", "0+10x100", "0x100"), "20m", (_invalid("10%"),)),
        Check("quiet", "late events are another matter", _events("0+90x100", "0x100", "0+10x100"), "20m"),
        Check("quiet", "no events at all", _events("5x100", "5x100", "5x100"), "20m"),
        Check("boundary", "one in a hundred is borne", _events("0+99x100", "0+1x100", "0x100"), "20m"),
        Check("boundary", "two are not", _events("0+98x100", "0+2x100", "0x100"), "20m", (_invalid("2%"),)),
        Check("boundary", "not yet after less than five minutes", _events("0+98x100", "0+2x100", "0x100"), "5m"),
        Check("boundary", "after five minutes", _events("0+98x100", "0+2x100", "0x100"), "5m15s", (_invalid("2%"),)),
    ),
    "LateEvents": (
        Check("fires", "one event in ten", _events("0+90x100", "0x100", "0+10x100"), "20m", (_late("10%"),)),
        Check("quiet", "invalid events are another matter", _events("0+90x100", "0+10x100", "0x100"), "20m"),
        Check("boundary", "one in a hundred is borne", _events("0+99x100", "0x100", "0+1x100"), "20m"),
        Check("boundary", "two are not", _events("0+98x100", "0x100", "0+2x100"), "20m", (_late("2%"),)),
        Check("boundary", "not yet after less than five minutes", _events("0+98x100", "0x100", "0+2x100"), "5m"),
        Check("boundary", "after five minutes", _events("0+98x100", "0x100", "0+2x100"), "5m15s", (_late("2%"),)),
    ),
    "ClockSkew": (
        Check("fires", "hours ahead", {SKEW: "7200x100"}, "15m", (_skewed("2h 0m 0s"),)),
        Check("quiet", "clocks that agree leave no series", {COVERAGE: "1x100"}, "20m"),
        Check("boundary", "a minute is borne", {SKEW: "60x100"}, "20m"),
        Check("boundary", "more is not", {SKEW: "61x100"}, "20m", (_skewed("1m 1s"),)),
        Check("fires", "it starts anew at the full hour", {SKEW: "61x40 _x4 61x40"}, "20m", (_skewed("1m 1s"),)),
        Check("quiet", "the clock was set right", {SKEW: "7200x40 _x200"}, "36m"),
        Check("boundary", "not for less than a quarter of an hour", {SKEW: "61x100"}, "14m45s"),
        Check("boundary", "for a quarter of an hour", {SKEW: "61x100"}, "15m", (_skewed("1m 1s"),)),
    ),
    "JobDown": (
        Check("fires", "while the scrape fails", {UP: "0x40"}, "5m", (DOWN,)),
        Check("quiet", "while it succeeds", {UP: "1x40"}, "5m"),
        Check("quiet", "another job that is down", {'up{job="other",instance="b:1"}': "0x40"}, "5m"),
        Check("boundary", "not for less than two minutes", {UP: "0x40"}, "1m45s"),
        Check("boundary", "for two minutes", {UP: "0x40"}, "2m", (DOWN,)),
    ),
    "JobAbsent": (
        Check("fires", "while there is no such target", {'up{job="other",instance="b:1"}': "1x40"}, "9m", (ABSENT,)),
        Check("quiet", "a target that is down is not absent", {UP: "0x40"}, "9m"),
        Check("boundary", "not for less than five minutes", {'up{job="other"}': "1x40"}, "4m45s"),
        Check("boundary", "for five minutes", {'up{job="other"}': "1x40"}, "5m", (ABSENT,)),
    ),
    "NotPublishing": (
        Check("fires", "up, and never a batch", {UP: "1x60"}, "12m", (NOT_PUBLISHING,)),
        Check("quiet", "up, with batches", {UP: "1x60", LAST: "0+15x60"}, "12m"),
        Check("quiet", "down is another alert", {UP: "0x60"}, "12m"),
        Check(
            "quiet",
            "another instance publishes, this one too",
            {UP: "1x60", LAST: "0x60", 'up{job="queuewatch",instance="b:9400"}': "0x60"},
            "12m",
        ),
        Check("boundary", "not for less than ten minutes", {UP: "1x60"}, "9m45s"),
        Check("boundary", "for ten minutes", {UP: "1x60"}, "10m", (NOT_PUBLISHING,)),
    ),
    "NoRecentBatch": (
        Check("fires", "while the time stamp stays", {LAST: "0x60"}, "10m", (_no_batch("10m 0s"),)),
        Check("quiet", "while batches come", {LAST: "0+15x60"}, "10m"),
        Check(
            "fires",
            "another instance publishes, this one does not",
            {LAST: "0x60", LAST.replace("a:9400", "b:9400"): "0+15x60"},
            "10m",
            (_no_batch("10m 0s"),),
        ),
        Check(
            "quiet",
            "the service was started on another host",
            {LAST: "0+15x20 stale", LAST.replace("a:9400", "b:9400"): "_x20 300+15x60"},
            "15m",
        ),
        Check("boundary", "a minute after the limit was passed, less a step", {LAST: "0x60"}, "2m"),
        Check("boundary", "a minute after the limit was passed", {LAST: "0x60"}, "2m15s", (_no_batch("2m 15s"),)),
    ),
    "PipelineLagging": (
        Check("fires", "minutes behind", {LAG: "180x60", READ: "0+900x60"}, "6m", (_lag("3m 0s"),)),
        Check("quiet", "keeps pace", {LAG: "0.5x60", READ: "0+900x60"}, "10m"),
        Check(
            "quiet",
            "a restart while nothing is sent: the newest event is old, and it was read",
            {LAG: "7200x60", READ: "900x60"},
            "10m",
        ),
        Check("boundary", "a minute is borne", {LAG: "60x60", READ: "0+900x60"}, "10m"),
        Check("boundary", "more is not", {LAG: "61x60", READ: "0+900x60"}, "10m", (_lag("1m 1s"),)),
        Check("boundary", "not for less than five minutes", {LAG: "61x60", READ: "0+900x60"}, "5m"),
        Check("boundary", "for five minutes", {LAG: "61x60", READ: "0+900x60"}, "5m15s", (_lag("1m 1s"),)),
    ),
    "FallingBehind": (
        Check("fires", "many and growing", {WAITING: "200000+1000x100"}, "20m", (_behind("280k"),)),
        Check("quiet", "many and shrinking: it catches up", {WAITING: "900000-1000x100"}, "20m"),
        Check("quiet", "few and growing", {WAITING: "0+10x100"}, "20m"),
        Check("boundary", "the limit itself is borne", {WAITING: "99920+1x80 100000x40"}, "20m"),
        Check("boundary", "not for less than ten minutes", {WAITING: "200000+1000x100"}, "10m"),
        Check("boundary", "for ten minutes", {WAITING: "200000+1000x100"}, "10m15s", (_behind("241k"),)),
    ),
    "TelemetryLost": (
        Check("fires", "records were gone", {_lost_records("0"): "0x8 40x40"}, "5m", (LOST,)),
        Check("fires", "a topic was created again", {RESETS: "0x8 1x40"}, "5m", (LOST,)),
        Check("fires", "a spool file was gone", {_lost_files("gone"): "0x8 1x40"}, "5m", (LOST,)),
        Check("fires", "a spool file was refused", {_lost_files("refused"): "0x8 1x40"}, "5m", (LOST,)),
        Check(
            "fires",
            "what the first batch after an outage finds, although no scrape saw the total rise",
            {_lost_records("0"): "0x20 stale _x200 500x100"},
            "1h5m",
            (LOST,),
        ),
        Check(
            "quiet",
            "an earlier loss when the service starts on another host",
            {_lost_records("0"): "500x20 stale", _lost_records("0").replace("a:9400", "b:9400"): "_x40 500x200"},
            "20m",
        ),
        Check("fires", "of all kinds, in one", {_lost_records("0"): "0x8 9x40", _lost_files("gone"): "0x8 1x40"}, "5m", (LOST,)),
        Check(
            "quiet",
            "nothing is lost",
            {_lost_records("0"): "0x80", RESETS: "0x80", _lost_files("gone"): "0x80", _lost_files("refused"): "3x80"},
            "10m",
        ),
        Check("boundary", "nothing new is nothing", {_lost_records("0"): "40x80"}, "15m"),
        Check("boundary", "one more is something", {_lost_records("0"): "40x20 41x60"}, "10m", (LOST,)),
    ),
    "FindingsCapped": (
        Check("fires", "when a list was cut", {_folded("messages"): "0x8 40x40"}, "5m", (_capped("messages"),)),
        Check("quiet", "groups fold by design", {_folded("groups"): "0+9x60", _folded("consumers"): "0+9x60"}, "10m"),
        Check("boundary", "nothing new is nothing", {_folded("messages"): "40x80"}, "10m"),
        Check("boundary", "one more is something", {_folded("messages"): "40x20 41x60"}, "10m", (_capped("messages"),)),
    ),
}
