"""A browser page of a running service for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
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
        if self.page.url != "about:blank":  # else an address that differs only behind # would load nothing
            self.page.goto("about:blank")
        self.page.goto(f"{self.server.url}/{address}")
        self.page.wait_for_selector("#live[data-state=live]", timeout=15_000)
        return self.page


@contextmanager
def _watched(visit: Visit) -> Iterator[None]:
    """Record errors in the page and its requests to other hosts while the block runs."""

    def note_error(error: Error) -> None:
        visit.troubles.append(str(error))

    def note_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.troubles.append(message.text)

    def note_dialog(dialog: Dialog) -> None:
        visit.troubles.append(dialog.message)
        dialog.dismiss()

    def note_request(request: Request) -> None:
        if not request.url.startswith(visit.server.url):
            visit.outside.append(request.url)

    notes: list[tuple[Any, Callable[[Any], None]]] = [
        ("pageerror", note_error),
        ("console", note_console),
        ("dialog", note_dialog),
        ("request", note_request),
    ]
    for event, note in notes:
        visit.page.on(event, note)
    yield
    if visit.page.url.startswith(visit.server.url):
        # A later server may get the same port, and so the same origin.
        visit.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    visit.page.goto("about:blank")
    for event, note in notes:
        visit.page.remove_listener(event, note)


class Pages:
    """Pages that one test uses after the other: showing the first document takes a new page half a second of processor time."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._idle: dict[str, list[Page]] = {}

    @contextmanager
    def borrowed(self, **context_options: Any) -> Iterator[Page]:
        """A page of a context with these options, with nothing left of the test before."""
        options = {"viewport": {"width": 1360, "height": 900}} | context_options
        idle = self._idle.setdefault(repr(sorted(options.items())), [])
        page = idle.pop() if idle else self._browser.new_context(**options).new_page()
        page.set_default_timeout(10_000)
        yield page
        page.unroute_all()
        page.emulate_media(color_scheme=context_options.get("color_scheme", "null"))
        page.mouse.move(0, 0)
        page.context.clear_permissions()
        page.context.clear_cookies()
        idle.append(page)


@pytest.fixture(scope="session")
def pages(browser: Browser) -> Pages:
    """The pages of all tests; they end with the browser."""
    return Pages(browser)


StartVisit = Callable[..., Visit]


@pytest.fixture
def visit(pages: Pages) -> Iterator[StartVisit]:
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
            page = stack.enter_context(pages.borrowed(**context_options))
            started = Visit(store, server, page, page.context)
            stack.enter_context(_watched(started))
            visits.append(started)
            return started

        yield start
        for visited in visits:
            assert visited.outside == []
