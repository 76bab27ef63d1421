"""Evidence stored by an earlier release can be read: fields it lacked keep their defaults."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from streaming.judge.knowledge.evidence import Claim, Evidence


@pytest.mark.parametrize("missing", range(6))
def test_evidence_with_fewer_fields_is_read(missing: int) -> None:
    """Fields are only ever added at the end."""
    kept = Evidence(seen_at=5, counted_at=4, tracked=Claim(1, 2, 3), exact_ends=7, counted_sum=1.5)
    stored = json.loads(json.dumps(kept.to_list()))
    read = Evidence.from_list(stored[: len(stored) - missing])
    assert read == kept
    assert read.tracked == Claim(1, 2, 3)


def test_sums_that_were_not_kept_begin_as_those_of_the_time_of_the_counts() -> None:
    """Otherwise a queue with late reports would be called partial after an upgrade."""
    before = Evidence(tracked_sum=3.0, tracked_in_flight_sum=2.0).to_list()[: Evidence.__slots__.index("tracked_sum_soon")]
    read = Evidence.from_list(before)
    assert (read.tracked_sum_soon, read.tracked_in_flight_sum_soon) == (3.0, 2.0)


def test_what_was_tracked_at_the_times_of_counts_is_stored() -> None:
    """A count that is not compared yet is compared after a restart."""
    read = Evidence.from_list(json.loads(json.dumps(Evidence(at_counts=[[7, 1, 2, 0], [9, 3, 0, 0]]).to_list())))
    assert (read.tracked_at(7), read.tracked_at(8), read.tracked_at(9)) == ([1, 2, 0], None, [3, 0, 0])


def test_every_field_is_stored() -> None:
    """A missing field would be lost at every restart."""
    assert len(Evidence().to_list()) == len(fields(Evidence))
