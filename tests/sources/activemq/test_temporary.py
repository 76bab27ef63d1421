"""Temporary queues are recognised by name alone."""

from __future__ import annotations

import pytest

from sources.activemq.temporary import is_temporary, of_lasting_queues


@pytest.mark.parametrize(
    ("queue", "temporary"),
    [
        ("ID:app-7f9c-44231-1616425384741-4:1:1", True),
        ("ID:collector.internal-34567-1795266478822-2:12:345", True),
        ("billing-36669-1796056357925-1:1:1", True),  # of a client with a connectionIDPrefix
        ("orders", False),
        ("orders:2026-11-30-1:1:1", False),
        ("ID:orders", False),
        ("ID:app-44231-1616425384741-4:1", False),
        ("replies.ID:app-44231-1616425384741-4:1:1", False),
        ("", False),
    ],
)
def test_temporary_queues_are_recognised_by_their_names(queue: str, temporary: bool) -> None:
    """Their names consist of the connection's id and a number."""
    assert is_temporary(queue) is temporary


def test_events_of_other_queues_and_of_none_pass() -> None:
    """A heartbeat has no queue."""
    events = [{"type": "heartbeat"}, {"queue": "orders"}, {"queue": "ID:app-44231-1616425384741-4:1:1"}]
    assert of_lasting_queues(events) == events[:2]
