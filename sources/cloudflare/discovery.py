"""The list of an account's queues, read page by page."""

from __future__ import annotations

import logging
from typing import Final

from sources.cloudflare.answers import ListedQueue, Page
from sources.cloudflare.api import PER_PAGE

log = logging.getLogger(__name__)

MAX_PAGES: Final = 200
"""Enough for twice as many queues as an account may have."""


class Discovery:
    """One reading of the list: request `next_page` and pass the answer to `take`, until `done`."""

    def __init__(self) -> None:
        self.next_page = 1
        self.done = False
        self._queues: dict[str, ListedQueue] = {}

    @property
    def queues(self) -> list[ListedQueue]:
        """Return the queues listed so far, each once: a list that changes while it is read may name one twice."""
        return list(self._queues.values())

    def take(self, page: Page) -> None:
        """Add one page."""
        for problem in page.bad:
            log.warning("Cloudflare: a queue in the list cannot be read and is left out: %s", problem)
        before = len(self._queues)
        for queue in page.queues:
            self._queues[queue.id] = queue
        if page.total_pages is not None:
            more = self.next_page < page.total_pages
        else:
            more = page.entries >= PER_PAGE
        # All queues were already known: the answer ignores the requested page.
        repeats = bool(page.queues) and len(self._queues) == before
        self.next_page += 1
        self.done = not more or not page.entries or repeats or self.next_page > MAX_PAGES
