"""Which settings are harmful, and from which value on."""

from __future__ import annotations

from typing import Any

import pytest

from sources.cloudflare.answers import ListedQueue
from sources.cloudflare.event_builder import settings_attributes
from sources.cloudflare.settings import (
    Backoff,
    Consumer,
    Queue,
    attributes_of,
    backoff_cap_exceeded_at_attempt,
    findings,
)

GOOD = Consumer(
    script="shop",
    max_batch_size=10,
    max_batch_timeout_s=5,
    max_retries=3,
    retry_delay_s=0,
    dead_letter_queue="orders-dlq",
)


@pytest.mark.parametrize(
    ("why", "backoff", "max_retries", "expected"),
    [
        ("30 ** attempts is 27,000 s at the third", Backoff(30, 30), 3, None),
        ("and 810,000 s at the fourth", Backoff(30, 30), 4, 4),
        ("which is the first too long, however many follow", Backoff(30, 30), 100, 4),
        ("retries that are not known may be the most there can be", Backoff(30, 30), None, 4),
        ("exactly 24 hours is taken", Backoff(43_200, 2), 2, None),
        ("and a second more is not", Backoff(43_200.5, 2), 2, 2),
        ("a single delay that is too long", Backoff(90_000, 1), 3, 1),
        ("without retries there is no delay", Backoff(90_000, 1), 0, None),
        ("a constant one never grows", Backoff(60, 1), 100, None),
        ("doubling from a second takes 18 attempts", Backoff(1, 2), 100, 18),
        ("numbers beyond any float are too long as well", Backoff(1, 1e9), 100, 2),
    ],
)
def test_when_a_backoff_passes_the_cap(why: str, backoff: Backoff, max_retries: int | None, expected: int | None) -> None:
    """The last attempt is not retried, so its delay does not count."""
    assert backoff_cap_exceeded_at_attempt(backoff, max_retries) == expected, why


def test_an_overflowing_backoff_is_infinite() -> None:
    """A delay too large for a float is infinite and raises no OverflowError."""
    assert Backoff(1e300, 1e300).delay_s(100) == float("inf")


def test_good_settings_are_all_reported_and_nothing_is_found() -> None:
    """The attribute names are the ones that the judge reads."""
    attributes = attributes_of(Queue(delivery_delay_s=0, retention_s=345_600, paused=False), GOOD)
    assert attributes == {
        "kind": "standard",
        "retention_s": 345_600,
        "delivery_delay_s": 0,
        "paused": False,
        "has_consumer": True,
        "consumer_type": "worker",
        "consumer_script": "shop",
        "max_batch_size": 10,
        "max_batch_timeout_s": 5,
        "max_retries": 3,
        "max_receive_count": 4,
        "retry_delay_s": 0,
        "dead_letter_queue": "orders-dlq",
        "has_dead_letter_queue": True,
    }
    assert findings("orders", attributes) == []


def test_unknown_settings_are_left_out() -> None:
    """A queue without a consumer has no consumer settings; an unknown number is not zero."""
    assert attributes_of(Queue(), None) == {"kind": "standard", "has_consumer": False}
    assert attributes_of(Queue(), Consumer()) == {"kind": "standard", "has_consumer": True, "consumer_type": "worker"}


def test_no_dead_letter_queue_is_reported_as_an_empty_name() -> None:
    """A known absence differs from an unknown value."""
    attributes = attributes_of(Queue(), Consumer(dead_letter_queue=""))
    assert (attributes["dead_letter_queue"], attributes["has_dead_letter_queue"]) == ("", False)


RULES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("no dead-letter queue", {"dead_letter_queue": ""}, ["no_dead_letter_queue"]),
    ("not known whether there is one", {}, []),
    ("its own dead-letter queue", {"dead_letter_queue": "orders"}, ["dead_letters_to_itself"]),
    ("no retries", {"max_retries": 0, "dead_letter_queue": "x"}, ["no_retries"]),
    ("no retries and nowhere to go", {"max_retries": 0, "dead_letter_queue": ""}, ["no_dead_letter_queue", "no_retries"]),
    ("one retry", {"max_retries": 1}, []),
    ("the largest batch, and errors fail all of it", {"max_batch_size": 100, "throws_on_error": True}, ["whole_batch_fails"]),
    ("a smaller one", {"max_batch_size": 99, "throws_on_error": True}, []),
    ("the largest batch, and nothing seen of errors", {"max_batch_size": 100}, []),
    ("a back-off past the cap", {"backoff_cap_exceeded_at_attempt": 4}, ["backoff_beyond_cap"]),
    ("retries outliving retention", {"retention_s": 600, "max_retries": 6, "retry_delay_s": 100}, ["retries_outlive_retention"]),
    ("retries that end before it", {"retention_s": 600, "max_retries": 5, "retry_delay_s": 100}, []),
    ("paused", {"paused": True}, ["delivery_paused"]),
    ("everything at its limit", {"max_batch_size": 100, "max_batch_timeout_s": 60, "max_retries": 100, "retry_delay_s": 86_400,
     "retention_s": 1_209_600, "delivery_delay_s": 86_400, "visibility_timeout_s": 43_200}, ["retries_outlive_retention"]),
    ("a batch beyond it", {"max_batch_size": 101}, ["beyond_limits"]),
    ("a timeout beyond it", {"max_batch_timeout_s": 61}, ["beyond_limits"]),
    ("retries beyond it", {"max_retries": 101}, ["beyond_limits"]),
    ("a delay beyond it", {"retry_delay_s": 86_401}, ["beyond_limits"]),
    ("a lease beyond it", {"visibility_timeout_s": 43_201}, ["beyond_limits"]),
    ("retention below it", {"retention_s": 59}, ["beyond_limits"]),
    ("an empty batch", {"max_batch_size": 0}, ["beyond_limits"]),
    ("no number", {"max_batch_size": "many", "max_retries": True}, []),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "expected"), [r[1:] for r in RULES], ids=[r[0] for r in RULES])
def test_each_rule_at_its_boundary(attributes: dict[str, Any], expected: list[str]) -> None:
    """The table has each rule at its limit and just below it."""
    found = findings("orders", attributes)
    assert [finding.rule for finding in found] == expected
    for finding in found:
        assert finding.summary.endswith("."), finding
        assert ". " in finding.summary, "what happens, then what to do"


LISTED = ListedQueue("id", "orders", Queue(retention_s=345_600))


def test_deployed_settings_take_precedence_over_declared_ones() -> None:
    """The attributes that differ are listed: someone changed one side and not the other."""
    declared = Consumer(script="shop", max_batch_size=10, max_batch_timeout_s=5, max_retries=9, dead_letter_queue="")
    attributes = settings_attributes(LISTED, (GOOD,), declared, None, None)
    assert attributes["max_retries"] == 3
    assert attributes["wrangler_differs"] == ["dead_letter_queue", "has_dead_letter_queue", "max_receive_count", "max_retries"]


def test_declared_settings_fill_gaps_in_the_api_s_answer() -> None:
    """They fill settings the answer left out, or all of them when there was no answer."""
    half = Consumer(script="shop", max_retries=3)
    filled = settings_attributes(LISTED, (half,), GOOD, 7, None)
    assert (filled["max_batch_size"], filled["dead_letter_queue"], filled["delivery_delay_s"]) == (10, "orders-dlq", 7)
    assert filled["wrangler_differs"] is None
    alone = settings_attributes(LISTED, None, GOOD, None, Backoff(90_000, 1))
    assert (alone["max_retries"], alone["has_consumer"], alone["retention_s"]) == (3, True, 345_600)
    assert [f["rule"] for f in alone["findings"]] == ["backoff_beyond_cap"]


def test_unknown_consumers_are_not_reported_as_none() -> None:
    """Only a known empty list of consumers sets has_consumer to false."""
    assert "has_consumer" not in settings_attributes(LISTED, None, None, None, None)
    assert settings_attributes(LISTED, (), None, None, None)["has_consumer"] is False


def test_a_setting_that_neither_the_api_nor_wrangler_has_is_withdrawn() -> None:
    """It may have been reported before. What the API always gives is unknown where it is missing, and stays as it was."""
    half = Consumer(script="shop", max_retries=3)
    attributes = settings_attributes(LISTED, (half,), None, None, None)
    withdrawn = {name for name, value in attributes.items() if value is None}
    assert withdrawn == {"max_batch_timeout_s", "retry_delay_s", "max_concurrency", "visibility_timeout_s", "wrangler_differs"}
    assert "dead_letter_queue" not in attributes
    assert "max_batch_size" not in attributes


def test_all_settings_of_a_removed_consumer_are_withdrawn() -> None:
    """Also its dead-letter queue, which Cloudflare keeps with the consumer; but not where a Wrangler file still declares it."""
    attributes = settings_attributes(LISTED, (), None, None, None)
    known = set(settings_attributes(LISTED, (GOOD,), None, None, None)) | {"visibility_timeout_s", "max_concurrency"}
    kept = {name: value for name, value in attributes.items() if value is not None}
    assert kept == {"kind": "standard", "retention_s": 345_600, "has_consumer": False, "findings": []}
    assert known <= attributes.keys()
    declared = settings_attributes(LISTED, (), GOOD, None, None)
    assert (declared["dead_letter_queue"], declared["max_retries"], declared["retry_delay_s"]) == ("orders-dlq", 3, 0)


@pytest.mark.parametrize("declared", [None, GOOD])
def test_nothing_is_withdrawn_while_the_consumers_are_unknown(declared: Consumer | None) -> None:
    """To the service, null in place of a dead-letter queue means that there is none."""
    attributes = settings_attributes(LISTED, None, declared, None, None)
    assert None not in attributes.values()
