"""Find out how many advisories the broker has discarded because the collector was behind. No network, no clock.

A policy entry for topics with a `pendingMessageLimitStrategy`, as in the broker's stock configuration, applies to advisories too:
the broker keeps no more than that for a collector that waits, and discards the others without telling it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from sources.activemq.advisory import TOPIC_PREFIX
from sources.activemq.statistics import SubscriptionCounts

_POLLS: Final = 3
"""The broker reads its counters one after the other, so at one poll an advisory on its way may look discarded."""
_NAME_PREFIX: Final = TOPIC_PREFIX.removeprefix("/topic/")


class DiscardWatch:
    """The advisories that one connection of the collector did not get."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._missing: deque[int] = deque(maxlen=_POLLS)
        self.discarded = 0
        """How many advisories were discarded for certain."""

    def observe(self, polled: Iterable[SubscriptionCounts]) -> None:
        """Process the subscriptions of one complete poll."""
        for subscription in polled:
            is_own = subscription.client_id == self._client_id and subscription.key[2].startswith(_NAME_PREFIX)
            # With a full prefetch window, advisories may still be waiting to be dispatched.
            if is_own and 2 * subscription.dispatched <= subscription.prefetch:
                self._missing.append(subscription.undispatched)
        if len(self._missing) == _POLLS:
            self.discarded = max(self.discarded, min(self._missing))
