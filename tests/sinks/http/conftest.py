"""A real server on a free port for each test, and a client for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from sinks.http import HttpSettings, create_app, serve
from sinks.store import SnapshotStore
from streaming.judge.snapshot import Snapshot
from tests.sinks.fakes import NOW_MS, hostile_snapshot, shop_snapshot


@dataclass(frozen=True)
class Service:
    """A running service, its store, and a client with its base URL."""

    store: SnapshotStore
    client: httpx.Client
    url: str


StartService = Callable[..., Service]


@contextmanager
def _running(snapshot: Snapshot | None, settings: HttpSettings) -> Iterator[Service]:
    store = SnapshotStore()
    if snapshot is not None:
        store.publish(snapshot)
    with (
        serve(create_app(store, settings), port=0) as server,
        httpx.Client(base_url=server.url, timeout=20) as client,
    ):
        yield Service(store, client, server.url)


@pytest.fixture
def start() -> Iterator[StartService]:
    """`start(snapshot, settings)` starts a service that has published `snapshot`; its clock stands at NOW_MS."""
    with ExitStack() as stack:

        def start_service(snapshot: Snapshot | None = None, settings: HttpSettings | None = None) -> Service:
            return stack.enter_context(_running(snapshot, settings or HttpSettings(clock_ms=lambda: NOW_MS)))

        yield start_service


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """The folder for the events of a test."""
    return tmp_path / "spool"


@pytest.fixture(scope="session")
def shop() -> Iterator[Service]:
    """The example shop with several signals firing, for tests that only read."""
    with _running(shop_snapshot(), HttpSettings(clock_ms=lambda: NOW_MS)) as service:
        yield service


@pytest.fixture(scope="session")
def hostile() -> Iterator[Service]:
    """A snapshot with hostile names everywhere, for tests that only read."""
    with _running(hostile_snapshot(), HttpSettings(clock_ms=lambda: NOW_MS)) as service:
        yield service
