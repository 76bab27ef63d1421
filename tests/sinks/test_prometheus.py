"""The exposition: exact bytes, the same samples as the catalogue, formats, hostile names, and speed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from sinks.prometheus import Exposition, Family, wants_openmetrics
from streaming.core.state.queues import TOTALS
from streaming.judge.metrics import METRIC_BY_NAME, METRICS
from streaming.judge.snapshot import (
    DURATION_BUCKETS_S,
    ConsumerView,
    Duration,
    GroupView,
    PipelineView,
    Snapshot,
)
from tests.core.driving import event
from tests.judge.driving import in_steps, judged
from tests.services.prometheus import Binaries
from tests.sinks.exposed import catalogued, exposition, gunzipped, parsed
from tests.sinks.fakes import (
    HOSTILE_NAMES,
    NOW_MS,
    age_counts,
    finding,
    hostile_snapshot,
    many_queues,
    queue_view,
    shop_snapshot,
)

GOLDEN_QUEUE = queue_view(
    "jobs.fifo",
    scope="eu",
    visible=2,
    in_flight=1,
    delayed=None,
    tracked=3,
    oldest_ms={"all": NOW_MS - 90_000, "visible": NOW_MS - 1_500},
    age_counts=age_counts([1.5, 4.0, 90.0]),
    age_sum_s=95.5,
    totals=dict.fromkeys(TOTALS, 0) | {"sent": 5, "received": 4, "deleted": 2},
    exact_ages=frozenset({"all"}),
    tracked_states={"visible": 1},
    receive_count_max=4,
    poison_messages=1,
    stuck_groups=1,
    groups={"backlog": 2, "in_flight": 1, "blocked": 1, "hidden": 0},
    top_groups=(GroupView("a", 2, 1, NOW_MS - 90_000, "m1", 4, None, True),),
    other_groups=3,
    other_groups_oldest_ms=NOW_MS - 4_000,
    consumers=(ConsumerView("w1", 1, NOW_MS - 7_000, "m1"), ConsumerView("idle", 0, None, None)),
    other_consumers_held_since_ms=NOW_MS - 100,
    dead_letter_expires_at_ms=NOW_MS + 3_600_000,
    time_to_drain_s=12.5,
    coverage_ratio=0.97,
    clock_skew_s=0.25,
)
GOLDEN_SNAPSHOT = Snapshot(
    at_ms=NOW_MS,
    queues=(GOLDEN_QUEUE,),
    firing=(
        finding("PoisonMessage", "jobs.fifo", "warning", NOW_MS - 1_000, "m1.", scope="eu", message_id="m1"),
        replace(
            finding("PoisonMessage", "jobs.fifo", "warning", NOW_MS - 1_000, "m2.", scope="eu", message_id="m2"),
            folded="QueueFailing",
        ),
    ),
    events_total={"accepted": 11, "invalid": 1},
    invalid_total={"not_json": 1},
    collectors={"c1": NOW_MS - 2_000},
    folded={"groups": 3},
    pipeline=PipelineView(4, 0.31, NOW_MS - 300, 0, 0.42, 4_096, 3, 88.0),
)
Q = 'system="aws_sqs",scope_id="eu",queue="jobs.fifo"'
GOLDEN_TEXT = f"""\
# HELP queuewatch_queue_messages Messages of the queue by state: tracked messages if all are reported, \
otherwise the broker's own count.
# TYPE queuewatch_queue_messages gauge
queuewatch_queue_messages{{{Q},state="visible"}} 2
queuewatch_queue_messages{{{Q},state="in_flight"}} 1
# HELP queuewatch_tracked_messages Unsettled messages tracked one by one, by state.
# TYPE queuewatch_tracked_messages gauge
queuewatch_tracked_messages{{{Q},state="visible"}} 1
# HELP queuewatch_telemetry_basis 1 for the basis of what is known about the queue (messages, \
consumers, …), 0 for the others.
# TYPE queuewatch_telemetry_basis gauge
queuewatch_telemetry_basis{{{Q},basis="messages"}} 1
queuewatch_telemetry_basis{{{Q},basis="consumers"}} 0
queuewatch_telemetry_basis{{{Q},basis="producers"}} 0
queuewatch_telemetry_basis{{{Q},basis="partial"}} 0
queuewatch_telemetry_basis{{{Q},basis="counts"}} 0
queuewatch_telemetry_basis{{{Q},basis="unknown"}} 0
# HELP queuewatch_oldest_message_age_seconds Age of the oldest unsettled message: all; visible to a consumer \
now; as CloudWatch would show; without poison suspects.
# TYPE queuewatch_oldest_message_age_seconds gauge
queuewatch_oldest_message_age_seconds{{{Q},scope="all"}} 90.0
queuewatch_oldest_message_age_seconds{{{Q},scope="visible"}} 1.5
# HELP queuewatch_oldest_message_timestamp_seconds Unix time from which the age of the oldest unsettled \
message counts, per scope.
# TYPE queuewatch_oldest_message_timestamp_seconds gauge
queuewatch_oldest_message_timestamp_seconds{{{Q},scope="all"}} 1763726310.0
queuewatch_oldest_message_timestamp_seconds{{{Q},scope="visible"}} 1763726398.5
# HELP queuewatch_oldest_message_age_exact 1 if the age of the oldest message is exact, 0 if it is a lower bound.
# TYPE queuewatch_oldest_message_age_exact gauge
queuewatch_oldest_message_age_exact{{{Q},scope="all"}} 1
queuewatch_oldest_message_age_exact{{{Q},scope="visible"}} 0
# HELP queuewatch_message_age_seconds Ages of the unsettled messages as of the last batch.
# TYPE queuewatch_message_age_seconds histogram
queuewatch_message_age_seconds_bucket{{{Q},le="1.0"}} 0
queuewatch_message_age_seconds_bucket{{{Q},le="5.0"}} 2
queuewatch_message_age_seconds_bucket{{{Q},le="15.0"}} 2
queuewatch_message_age_seconds_bucket{{{Q},le="30.0"}} 2
queuewatch_message_age_seconds_bucket{{{Q},le="60.0"}} 2
queuewatch_message_age_seconds_bucket{{{Q},le="120.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="300.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="900.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="1800.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="3600.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="14400.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="43200.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="86400.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="345600.0"}} 3
queuewatch_message_age_seconds_bucket{{{Q},le="+Inf"}} 3
queuewatch_message_age_seconds_count{{{Q}}} 3
queuewatch_message_age_seconds_sum{{{Q}}} 95.5
# HELP queuewatch_messages_sent_total Messages sent to the queue; dead letters and redriven messages that arrive are not counted.
# TYPE queuewatch_messages_sent_total counter
queuewatch_messages_sent_total{{{Q}}} 5
"""


def test_the_text_format_has_exactly_these_bytes() -> None:
    """A change of names, order, labels or number format fails here before it breaks a user's dashboard."""
    text = exposition(GOLDEN_SNAPSHOT)
    start = text.index("# HELP queuewatch_queue_messages")
    end = text.index("# HELP queuewatch_messages_received_total")
    assert text[start:end] == GOLDEN_TEXT
    assert text.startswith(
        "# HELP queuewatch_build_info Always 1; the labels are the versions of queuewatch and of its Python.\n"
        "# TYPE queuewatch_build_info gauge\n"
        'queuewatch_build_info{version="9.9",python="'
    )
    for line in (
        f'queuewatch_group_oldest_message_age_seconds{{{Q},group="other"}} 4.0',
        f'queuewatch_consumer_oldest_held_seconds{{{Q},consumer="w1"}} 7.0',
        f"queuewatch_dead_letter_expiry_seconds{{{Q}}} 3600.0",
        f'queuewatch_signals{{{Q},signal="PoisonMessage",severity="warning"}} 1',
        'queuewatch_telemetry_last_event_timestamp_seconds{collector="c1"} 1763726398.0',
        'queuewatch_events_total{result="accepted"} 11',
        "queuewatch_pipeline_last_batch_timestamp_seconds 1763726399.7",
    ):
        assert f"\n{line}\n" in text
    assert 'consumer="idle"' not in text, "a consumer that holds nothing has no age"


def test_openmetrics_names_counters_without_total_and_ends_with_eof() -> None:
    """The two formats differ only in metadata: every series has the same name in both."""
    text = exposition(GOLDEN_SNAPSHOT, openmetrics=True)
    assert "# TYPE queuewatch_messages_sent counter\n" in text
    assert "# TYPE queuewatch_build info\n" in text
    assert text.endswith("# EOF\n")
    assert parsed(text, openmetrics=True) == parsed(exposition(GOLDEN_SNAPSHOT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "snapshot",
    [GOLDEN_SNAPSHOT, shop_snapshot(), many_queues(120), Snapshot(NOW_MS, (), (), {})],
    ids=["golden", "shop", "many", "empty"],
)
@pytest.mark.parametrize("later_ms", [0, 61_234])
@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "openmetrics"])
def test_the_exposition_is_the_catalogues_samples(snapshot: Snapshot, later_ms: int, openmetrics: bool) -> None:
    """The fast renderer must agree with the catalogue that replay uses."""
    text = exposition(snapshot, NOW_MS + later_ms, openmetrics=openmetrics)
    assert parsed(text, openmetrics=openmetrics) == catalogued(snapshot, NOW_MS + later_ms)


def test_every_family_of_the_catalogue_is_exposed() -> None:
    """Otherwise a metric that is missing from the renderer would go unnoticed."""
    took = Duration((1,) * (len(DURATION_BUCKETS_S) + 1), 1.5)
    totals = dict.fromkeys(GOLDEN_QUEUE.totals, 1)
    every_total = replace(GOLDEN_QUEUE, totals=totals, durations={"wait": took, "processing": took, "sojourn": took})
    text = exposition(replace(GOLDEN_SNAPSHOT, queues=(every_total,)))
    described = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert described == {metric.name for metric in METRICS} | {"queuewatch_build_info"}
    assert described <= METRIC_BY_NAME.keys(), "from which docs/metrics.md is written"


def test_ages_advance_between_two_scrapes_of_one_snapshot() -> None:
    """Ten seconds later, without a new batch, every age is 10 s higher and the dead letter's expiry 10 s nearer."""
    renderer = Exposition(process_metrics=False)
    first = parsed(renderer.render(GOLDEN_SNAPSHOT, NOW_MS).decode())
    second = parsed(renderer.render(GOLDEN_SNAPSHOT, NOW_MS + 10_000).decode())
    moved = {(key[0], second[key] - first[key]) for key in first if second[key] != first[key]}
    assert moved == {
        ("queuewatch_oldest_message_age_seconds", 10.0),
        ("queuewatch_group_oldest_message_age_seconds", 10.0),
        ("queuewatch_consumer_oldest_held_seconds", 10.0),
        ("queuewatch_dead_letter_expiry_seconds", -10.0),
    }


def test_a_senders_fast_clock_gives_no_negative_age() -> None:
    """A message whose timestamp lies in the future has age zero."""
    ages = [v for k, v in parsed(exposition(GOLDEN_SNAPSHOT, NOW_MS - 3_600_000)).items() if "_age_seconds" in k[0]]
    assert min(ages) == 0


@pytest.mark.slow
def test_a_renderer_kept_between_scrapes_gives_the_same_text_as_a_new_one() -> None:
    """Queues that change, stay the same, grow older, appear and vanish are scraped after every step."""
    events = [
        event("sent", 1_000 * i, message_id=f"{queue}-{i}", queue=queue)
        for queue, until in (("orders", 60), ("invoices", 10), ("mails", 30))
        for i in range(until)
    ]
    events += [event("deleted", 1_000 * i + 500, message_id=f"orders-{i}", queue="orders") for i in range(20, 60)]
    events += [event("queue_state", 5_000 * i, queue="invoices", attributes={"visible": 10, "in_flight": 0}) for i in range(14)]
    kept = Exposition(process_metrics=False)
    seen = set()
    for snapshot in judged(in_steps(sorted(events, key=lambda e: e["at"]), 1, 70)).snapshots:
        text = kept.render(snapshot, snapshot.at_ms)
        assert text == Exposition(process_metrics=False).render(snapshot, snapshot.at_ms)
        assert text == gunzipped(kept.render_gzip(snapshot, snapshot.at_ms))
        seen.add(text)
    assert len(seen) > 60


def test_metrics_that_are_left_out_have_no_lines() -> None:
    """Metrics of the snapshot and of the sinks can be left out; the others do not change."""
    family = Family("queuewatch_http_connections", [({}, 3)])
    left_out = (
        "queuewatch_build_info",
        "queuewatch_telemetry_basis",
        "queuewatch_message_age_seconds",
        "queuewatch_signals",
        "queuewatch_http_connections",
    )
    full, less = (
        Exposition(process_metrics=False, left_out=names, about_sinks=[lambda: [family]]).render(GOLDEN_SNAPSHOT, NOW_MS).decode()
        for names in ((), left_out)
    )
    of_left_out = re.compile(rf"(# \w+ )?({'|'.join(left_out)})(_bucket|_count|_sum)?[ {{]")
    assert less.splitlines() == [line for line in full.splitlines() if not of_left_out.match(line)]
    assert less != full


def test_without_zero_states_a_queue_has_the_series_of_its_states_only() -> None:
    """Nothing else changes; eleven series of each queue are saved."""
    full, less = (
        Exposition(process_metrics=False, zero_states=zero_states).render(GOLDEN_SNAPSHOT, NOW_MS).decode().splitlines()
        for zero_states in (True, False)
    )
    of_state = re.compile(r"queuewatch_(queue_status|telemetry_basis)\{")
    assert less == [line for line in full if not (of_state.match(line) and line.endswith(" 0"))]
    assert len(full) - len(less) == 11 * len(GOLDEN_SNAPSHOT.queues)


def test_a_queue_that_vanished_has_no_series() -> None:
    """The renderer keeps nothing of an earlier snapshot."""
    renderer = Exposition(process_metrics=False)
    renderer.render(GOLDEN_SNAPSHOT, NOW_MS)
    assert b"jobs.fifo" not in renderer.render(replace(GOLDEN_SNAPSHOT, queues=(), firing=()), NOW_MS)


def test_nan_and_infinity_have_no_series() -> None:
    """Prometheus accepts NaN and infinity, but they spoil every sum."""
    queue = replace(GOLDEN_QUEUE, time_to_drain_s=float("inf"), coverage_ratio=float("nan"))
    text = exposition(replace(GOLDEN_SNAPSHOT, queues=(queue,)))
    assert "time_to_drain" not in text
    assert "coverage" not in text


def test_a_group_named_other_does_not_duplicate_a_series() -> None:
    """The group shares the series of the folded groups, which shows the older of the two."""
    queue = replace(GOLDEN_QUEUE, top_groups=(GroupView("other", 1, 0, NOW_MS - 60_000, None, 0, None, False),))
    found = parsed(exposition(replace(GOLDEN_SNAPSHOT, queues=(queue,))))
    ages = [v for (name, _), v in found.items() if name == "queuewatch_group_oldest_message_age_seconds"]
    assert ages == [60.0]


def test_hostile_names_come_back_as_they_are() -> None:
    """Quotes, backslashes and newlines are escaped; a lone surrogate becomes a question mark."""
    found = parsed(exposition(hostile_snapshot()))
    queues = {dict(labels)["queue"] for name, labels in found if name == "queuewatch_queue_messages"}
    assert queues == {name.encode("utf-8", "replace").decode() for name in HOSTILE_NAMES}


def test_metrics_of_the_sinks_are_included() -> None:
    """Counters of the sinks are read at scrape time."""
    family = Family("queuewatch_alertmanager_posts_total", [({"destination": 'a"b', "result": "ok"}, 3)])
    renderer = Exposition(process_metrics=False, about_sinks=[lambda: [family]])
    text = renderer.render(None, NOW_MS).decode()
    name = "queuewatch_alertmanager_posts_total"
    assert f'# TYPE {name} counter\n{name}{{destination="a\\"b",result="ok"}} 3\n' in text


@pytest.mark.parametrize("openmetrics", [False, True])
def test_process_metrics_are_included(openmetrics: bool) -> None:
    """The usual process series are in both formats, and OpenMetrics ends with one EOF."""
    text = Exposition().render(GOLDEN_SNAPSHOT, NOW_MS, openmetrics=openmetrics).decode()
    assert ("process_resident_memory_bytes", frozenset()) in parsed(text, openmetrics=openmetrics)
    assert text.count("# EOF") == int(openmetrics)


@pytest.mark.parametrize(
    ("accept", "openmetrics", "why"),
    [
        ("", False, "curl without a wish"),
        ("*/*", False, "curl"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False, "a browser"),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
            "Prometheus 2",
        ),
        ("text/plain;version=0.0.4;q=0.8,application/openmetrics-text;q=0.2", False, "prefers text"),
        (
            "application/openmetrics-text;q=nonsense,text/plain;q=0.1",
            False,
            "a broken quality counts as none",
        ),
    ],
)
def test_the_format_is_the_one_that_the_scraper_prefers(accept: str, openmetrics: bool, why: str) -> None:
    """The Accept headers are those of real clients."""
    assert wants_openmetrics(accept) is openmetrics, why


@pytest.mark.parametrize("snapshot", [shop_snapshot(), hostile_snapshot()], ids=["shop", "hostile"])
def test_promtool_finds_no_problem(prometheus_binaries: Binaries, snapshot: Snapshot) -> None:
    """Prometheus' own linter checks names, types, help texts and labels."""
    checked = subprocess.run(
        [prometheus_binaries.promtool, "check", "metrics"],
        input=Exposition().render(snapshot, NOW_MS),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
