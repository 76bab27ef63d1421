"""The wait of the tests itself."""

from __future__ import annotations

import pytest

from tests.waiting import until


def test_the_first_true_answer_is_returned() -> None:
    """Later questions are not asked."""
    answers = iter([0, [], "it", "more"])
    assert until(lambda: next(answers), "an answer", every_s=0) == "it"
    assert next(answers) == "more"


def test_a_failure_names_what_was_waited_for_and_the_last_answer() -> None:
    """Even without any time left, one question is asked."""
    with pytest.raises(AssertionError, match=r"not within 0 s: the queue is empty; last answer: \[\]; depth 3"):
        until(list, "the queue is empty", within_s=0, every_s=0, shows=lambda: "depth 3")


def test_only_named_errors_are_waited_through() -> None:
    """The last of them is in the failure; any other ends the wait."""

    def away() -> bool:
        raise ConnectionRefusedError("nobody listens")

    with pytest.raises(AssertionError, match=r"last error: ConnectionRefusedError\('nobody listens'\)"):
        until(away, "it listens", within_s=0, every_s=0, despite=OSError)
    with pytest.raises(ConnectionRefusedError):
        until(away, "it listens", within_s=0, every_s=0, despite=ValueError)
