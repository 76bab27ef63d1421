"""The stored text of a queue's attributes can be searched for its dead-letter queue without parsing it."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.core.state.queue_text import SharedTexts, may_name_dead_letter_queue, write_attributes
from streaming.core.state.queues import Reported

AT = 1_700_000_000_000


@pytest.mark.parametrize("name", ["dead", 'a "quoted" one', "back\\slash\\", "été", "🐇", "\ud800", '","x":[0,"', "]"])
@pytest.mark.parametrize("last_state_at", [AT, AT + 1])
def test_a_queue_that_names_one_of_them_is_found(name: str, last_state_at: int) -> None:
    """However its name is escaped, and whenever it was reported."""
    attributes: dict[str, Any] = {"visible": 3, "dead_letter_queue": name, "tags": {"a": "b"}}
    texts = [{"visible": 3}, attributes, {"dead_letter_queue": None}, {"dead_letter_queue": f"{name}2"}]
    shared = SharedTexts.shared(
        write_attributes({key: Reported(AT, value) for key, value in text.items()}, last_state_at) for text in texts
    )
    assert may_name_dead_letter_queue(shared, {"other", name}).tolist() == [False, True, False, False]


def test_no_queues_are_searched() -> None:
    """A state may have none."""
    assert not len(may_name_dead_letter_queue(SharedTexts.shared([]), {"dead"}))
