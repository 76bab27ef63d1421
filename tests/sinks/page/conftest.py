"""A browser page of a running service for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
)

from sinks.clock import wall_ms
from sinks.http import HttpSettings, RunningServer, create_app, serve
from sinks.store import SnapshotStore
from streaming.judge.snapshot import Snapshot

Q = "#/queue?system=aws_sqs&scope=123456789012%2Feu-west-1&queue="
"""The address of a queue of the example shop; append the queue's name."""


@dataclass
class Visit:
    """A service, a page that shows it, and all errors in the page."""

    store: SnapshotStore
    server: RunningServer
    page: Page
    context: BrowserContext
    troubles: list[str] = field(default_factory=list)
    """Script errors, refused resources and dialogs."""
    outside: list[str] = field(default_factory=list)
    """Requests to other hosts."""

    def open(self, address: str = "#/") -> Page:
        """Load the page anew and wait until it is live."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.server.url}/{address}")
        self.page.wait_for_selector("#live[data-state=live]", timeout=15_000)
        return self.page


def _watch(visit: Visit) -> None:
    """Record errors in the page and its requests to other hosts."""

    def note_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.troubles.append(message.text)

    def note_dialog(dialog: Dialog) -> None:
        visit.troubles.append(dialog.message)
        dialog.dismiss()

    def note_request(request: Request) -> None:
        if not request.url.startswith(visit.server.url):
            visit.outside.append(request.url)

    visit.page.on("pageerror", lambda error: visit.troubles.append(str(error)))
    visit.page.on("console", note_console)
    visit.page.on("dialog", note_dialog)
    visit.page.on("request", note_request)


StartVisit = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser) -> Iterator[StartVisit]:
    """`visit(snapshot, **context)` starts a service that has published `snapshot`, and a page that has not opened it yet."""
    with ExitStack() as stack:
        visits: list[Visit] = []

        def start(
            snapshot: Snapshot | None = None,
            clock_ms: Callable[[], int] = wall_ms,
            settings: HttpSettings | None = None,
            **context_options: Any,
        ) -> Visit:
            store = SnapshotStore()
            if snapshot is not None:
                store.publish(snapshot)
            server = stack.enter_context(serve(create_app(store, settings or HttpSettings(clock_ms=clock_ms)), port=0))
            context = browser.new_context(**({"viewport": {"width": 1360, "height": 900}} | context_options))
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(10_000)
            started = Visit(store, server, page, context)
            _watch(started)
            visits.append(started)
            return started

        yield start
        for visited in visits:
            assert visited.outside == []
