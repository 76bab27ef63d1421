"""Native histograms in protobuf, parsed by the protobuf library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.native_histograms import ZERO_THRESHOLD, NativeExposition, wants_protobuf
from sinks.protobuf import varint, zigzag
from streaming.core.state.duration_buckets import DURATIONS, NATIVE_LAST, NATIVE_SCHEMA, NATIVE_ZERO
from streaming.judge.snapshot import DURATION_BUCKETS_S, Duration, NativeBuckets, QueueView, Snapshot
from tests.sinks.exposed import gunzipped
from tests.sinks.fakes import HOSTILE_NAMES, NOW_MS, hostile_snapshot, many_queues
from tests.sinks.metrics_proto import HISTOGRAM, buckets, families

ACCEPT_2_42 = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""What Prometheus 2.42 sends with native histograms enabled."""


def took(counts: Mapping[int, int], sum_s: float = 1.5) -> Duration:
    """Return a distribution with these native buckets."""
    native = NativeBuckets.of(np.array(sorted(counts)), np.array([counts[index] for index in sorted(counts)]))
    return Duration((0,) * len(DURATION_BUCKETS_S) + (sum(counts.values()),), sum_s, native, sum_s)


def snapshot_of(*views: QueueView) -> Snapshot:
    return Snapshot(NOW_MS, views, (), {})


VIEWS = many_queues(700).queues


@given(st.dictionaries(st.integers(NATIVE_ZERO, NATIVE_LAST), st.integers(1, 2**40), min_size=1), st.floats(0, 1e12))
def test_a_parser_finds_what_was_counted(counts: dict[int, int], sum_s: float) -> None:
    """Any buckets, with and without gaps, and the zero bucket; the count is that of all buckets."""
    view = replace(VIEWS[0], durations={"sojourn": took(counts, sum_s)})
    (family,) = families(NativeExposition().render(snapshot_of(view)))
    assert (family.name, family.type) == ("queuewatch_sojourn_seconds", HISTOGRAM)
    (metric,) = family.metric
    assert {pair.name: pair.value for pair in metric.label} == {
        "system": view.system,
        "scope_id": view.scope,
        "queue": view.queue,
    }
    found = metric.histogram
    assert found.sample_count == sum(counts.values())
    assert (found.sample_sum, found.schema, found.zero_threshold) == (sum_s, NATIVE_SCHEMA, ZERO_THRESHOLD)
    assert found.zero_count == counts.get(NATIVE_ZERO, 0)
    assert buckets(found) == {index: n for index, n in counts.items() if index != NATIVE_ZERO}
    assert not found.bucket, "classic buckets are in the text exposition"


def test_what_is_not_counted_has_no_series() -> None:
    """A queue without settled messages; one whose messages were all counted in classic buckets; a metric that is left out."""
    earlier = Duration((1,) * (len(DURATION_BUCKETS_S) + 1), 9.0)
    counted = dict.fromkeys(DURATIONS, took({3: 1}))
    views = (VIEWS[0], replace(VIEWS[1], durations={"wait": earlier}), replace(VIEWS[2], durations=counted))
    exposition = NativeExposition(left_out=["queuewatch_wait_seconds"])
    found = {family.name: len(family.metric) for family in families(exposition.render(snapshot_of(*views)))}
    assert found == {"queuewatch_processing_seconds": 1, "queuewatch_sojourn_seconds": 1}
    assert exposition.render(None) == exposition.render(snapshot_of()) == b""


def test_hostile_names_are_labels() -> None:
    """Half of a surrogate pair becomes a question mark, as in the text format."""
    snapshot = hostile_snapshot()
    views = [replace(view, durations={"wait": took({0: 1})}) for view in snapshot.queues]
    (family,) = families(NativeExposition().render(replace(snapshot, queues=tuple(views))))
    names = {pair.value for metric in family.metric for pair in metric.label if pair.name == "queue"}
    assert {name.encode("utf-8", "replace").decode() for name in HOSTILE_NAMES} <= names


def test_an_exposition_kept_between_scrapes_gives_what_a_new_one_does() -> None:
    """Queues fill several compressed blocks; then one changes, one vanishes and one appears."""
    kept = NativeExposition()
    views = [replace(view, durations={"sojourn": took({n % 50: n + 1})}) for n, view in enumerate(VIEWS)]
    changed = [*views[:500], replace(views[500], durations={"sojourn": took({-3: 7})}), *views[501:]]
    other = [*changed[:300], *changed[301:], replace(views[300], queue="zzz")]
    for queues in (views, changed, changed, other, other[:10]):
        snapshot = snapshot_of(*queues)
        fresh = NativeExposition().render(snapshot)
        assert kept.render(snapshot) == fresh
        assert gunzipped(kept.render_gzip(snapshot)) == fresh
        (family,) = families(fresh)
        assert len(family.metric) == len(queues)


def test_only_histograms_that_changed_are_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of queues few change between two scrapes."""
    encoded: list[int] = []

    def noted(value: int) -> int:
        encoded.append(value)
        return zigzag(value)

    monkeypatch.setattr("sinks.native_histograms.zigzag", noted)
    exposition = NativeExposition()
    views = [replace(view, durations={"sojourn": took({5: 1})}) for view in VIEWS[:6]]
    exposition.render(snapshot_of(*views))
    encoded.clear()
    exposition.render(snapshot_of(*views[:5], replace(views[5], durations={"sojourn": took({5: 2})})))
    assert encoded == [NATIVE_SCHEMA, 5]


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (ACCEPT_2_42, True),
        ("application/vnd.google.protobuf", True),
        ("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=text", False),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/vnd.google.protobuf;q=0.6", True),
        ("application/vnd.google.protobuf;q=0,text/plain", False),
        ("application/vnd.google.protobuf; q=0.000", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_protobuf_is_sent_only_to_those_who_name_it(accept: str, wanted: bool) -> None:
    assert wants_protobuf(accept) is wanted


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**64 - 1, "ff" * 9 + "01")]
)
def test_integers_are_encoded_as_the_format_defines(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded


def test_signed_integers_take_turns() -> None:
    assert [zigzag(value) for value in (0, -1, 1, -2, 2**63 - 1, -(2**63))] == [0, 1, 2, 3, 2**64 - 2, 2**64 - 1]
