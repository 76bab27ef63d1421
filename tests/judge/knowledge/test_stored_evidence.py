"""Evidence, and counted arrivals, stored as a list by an earlier release can be read: fields it lacked keep their defaults."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest

from streaming.judge.counted_arrivals import CountedArrivals
from streaming.judge.knowledge.evidence import Claim, Evidence
from streaming.judge.memory.earlier_memory import EVIDENCE_ORDER, arrivals_of, evidence_of


def stored(evidence: Evidence) -> list[Any]:
    """Return the values in the order in which they were stored: a claim is a list of its own."""
    values = (getattr(evidence, name) for name in EVIDENCE_ORDER)
    return [list(astuple(value)) if isinstance(value, Claim) else value for value in values]


@pytest.mark.parametrize("missing", range(6))
def test_evidence_with_fewer_fields_is_read(missing: int) -> None:
    """Fields were only ever added at the end."""
    kept = Evidence(seen_at=5, counted_at=4, tracked=Claim(1, 2, 3), exact_ends=7, counted_sum=1.5)
    read = evidence_of(stored(kept)[: len(stored(kept)) - missing])
    assert read == kept
    assert read.tracked == Claim(1, 2, 3)


def test_sums_that_were_not_kept_begin_as_those_of_the_time_of_the_counts() -> None:
    """Otherwise a queue with late reports would be called partial after an upgrade."""
    before = stored(Evidence(tracked_sum=3.0, tracked_in_flight_sum=2.0))[: EVIDENCE_ORDER.index("tracked_sum_soon")]
    read = evidence_of(before)
    assert (read.tracked_sum_soon, read.tracked_in_flight_sum_soon) == (3.0, 2.0)


@pytest.mark.parametrize("inferred", [[], [["m1", 7]]])
def test_arrivals_stored_before_later_values_existed_are_read(inferred: list[Any]) -> None:
    """For a while, a list of inferred arrivals followed the ids."""
    assert arrivals_of([1, 2, 3, 4, 5, 6, 7, ["a"], *inferred]) == CountedArrivals(1, 2, 3, 4, 5, 6, 7, quiet_ids=["a"])
    assert arrivals_of([1, 2, 3, 4, 5, 6, 7, [], *inferred, 8, 9, 10]).rose_at == 10
