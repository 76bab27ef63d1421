"""Which groups of queues without order, and which consumers, a shard lists: as if each queue were looked at alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.core.reporting import tenants
from streaming.core.settings import Settings
from tests.core.driving import T0, event, run_steps


class Given(NamedTuple):
    """A message of one queue, by its tenth of a second of sending. Held messages were received then, all others are visible."""

    queue: int
    group: str | None
    consumer: str | None
    received_s: int


MESSAGES = st.lists(
    st.builds(
        Given,
        st.integers(0, 2),
        st.sampled_from([None, "a", "b", "c", "d"]),
        st.sampled_from([None, "w", "x", "y"]),
        st.integers(10, 12),
    ),
    max_size=16,
)


def reported(messages: list[Given], sent_ms: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the events of some messages."""
    for n, (one, at) in enumerate(zip(messages, sent_ms, strict=True)):
        about: dict[str, Any] = {"queue": f"q{one.queue}", "message_id": f"m{n}"}
        if one.group is not None:
            about["group"] = one.group
        yield event("sent", at, **about)
        if one.consumer is not None:
            yield event("received", 1_000 * one.received_s, consumer=one.consumer, receive_count=1, **about)


@pytest.mark.slow
@given(MESSAGES, st.data(), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))
def test_the_groups_and_consumers_of_each_queue(
    messages: list[Given], data: st.DataObject, most: int, busiest: int, consumers: int
) -> None:
    """The oldest groups and the busiest of the others; the consumers that have held a message for longest; ties by name."""
    # Several groups may be as old.
    sent_ms = [data.draw(st.integers(0, 3)) * 100 for _ in messages]
    settings = Settings(groups_per_report=most, consumers_per_report=consumers)
    with patch.object(tenants, "BUSIEST_LISTED", busiest):
        [merged] = run_steps([(13_000, list(reported(messages, sent_ms)))], settings, shards=1)
    for name, summary in merged.queues.items():
        mine = [(one, at) for one, at in zip(messages, sent_ms, strict=True) if f"q{one.queue}" == name.queue]
        groups: dict[str, list[tuple[Given, int]]] = {}
        for one, at in mine:
            if one.group is not None:
                groups.setdefault(one.group, []).append((one, at))
        oldest = sorted(groups, key=lambda group: (min(at for _, at in groups[group]), group))
        held = {group: sum(one.consumer is not None for one, _ in groups[group]) for group in groups}
        others = sorted(oldest[most:], key=lambda group: -held[group])[:busiest]
        assert [group.name for group in summary.groups] == oldest[:most] + others
        assert summary.folded_groups == len(oldest[most:]) - len(others)
        for group in summary.groups:
            found = groups[group.name]
            assert (group.unsettled, group.in_flight) == (len(found), held[group.name])
            assert (group.visible, group.oldest_sent_at) == (len(found) - held[group.name], T0 + min(at for _, at in found))
        holders: dict[str, list[tuple[int, int]]] = {}
        for one, at in mine:
            if one.consumer is not None:
                holders.setdefault(one.consumer, []).append((one.received_s, at))
        longest = sorted(holders, key=lambda consumer: (min(holders[consumer])[0], consumer))[:consumers]
        assert [holder.consumer for holder in summary.consumers] == longest
        for holder in summary.consumers:
            since_s, sent = min(holders[holder.consumer])
            assert (holder.messages, holder.since) == (len(holders[holder.consumer]), T0 + 1_000 * since_s)
            n = int(holder.message_id.removeprefix("m"))
            assert (messages[n].received_s, sent_ms[n], messages[n].group) == (since_s, sent, holder.group)
