"""Estimate the broker's clock.

Arrivals and dispatches carry the broker's own time, but no advisory reports when an acknowledgement, a move to
a dead-letter queue or an expiry happened. Stamping those with this machine's clock would order a message's
events wrongly when the clocks differ or the collector is behind. So the time of an unstamped advisory is the
broker's time of the stamped ones around it, advanced by the time that passed here.
"""

from __future__ import annotations

_RECENT_MS = 1_000
"""A stamped advisory this recent shows how far behind the collector is; an older one no longer does."""

_WINDOW_MS = 600_000
"""Clocks drift and are stepped: a difference seen more than two windows ago is forgotten."""


class BrokerClock:
    """Estimates broker time (epoch milliseconds) from pairs of broker time and local time."""

    def __init__(self) -> None:
        self._window_from_ms: int | None = None
        self._least_ms = 0
        self._least_before_ms: int | None = None
        self._last_broker_ms = 0
        self._last_local_ms = 0

    def observe(self, broker_ms: int, local_ms: int) -> None:
        """Record that an advisory stamped `broker_ms` was read at `local_ms`."""
        behind_ms = local_ms - broker_ms
        if self._window_from_ms is None:
            self._window_from_ms, self._least_ms = local_ms, behind_ms
        elif not 0 <= (since_ms := local_ms - self._window_from_ms) < _WINDOW_MS:
            # After a long pause, the window before is not the last one.
            self._least_before_ms = self._least_ms if abs(since_ms) < 2 * _WINDOW_MS else None
            self._window_from_ms, self._least_ms = local_ms, behind_ms
        elif behind_ms < self._least_ms:
            self._least_ms = behind_ms
        self._last_broker_ms = broker_ms
        self._last_local_ms = local_ms

    def at(self, local_ms: int) -> int:
        """Return the broker's time of an unstamped advisory that was read at `local_ms`."""
        offset_ms = self.offset_ms
        if offset_ms is None:
            return local_ms
        since_ms = local_ms - self._last_local_ms
        if 0 <= since_ms <= _RECENT_MS:
            return self._last_broker_ms + since_ms
        return local_ms - offset_ms

    @property
    def offset_ms(self) -> int | None:
        """Return how far this machine's clock is ahead of the broker's, plus the shortest transit; None while unknown."""
        # The least difference is the clocks' offset plus the least delay: the best estimate there is.
        if self._window_from_ms is None:
            return None
        return self._least_ms if self._least_before_ms is None else min(self._least_ms, self._least_before_ms)
