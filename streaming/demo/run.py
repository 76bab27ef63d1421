"""The implementation of the demo: the shop, the SQS stand-in, telemetry, and the same job that runs in production."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from queuewatch import flush, watch
from sinks.http import RunningServer
from sinks.store import SnapshotStore
from sources.collect.runner import run_collector
from sources.sqs.config import SqsCollectorConfig
from streaming.config.model import Config
from streaming.demo.shop import Shop

HOST = "127.0.0.1"
# Shorter than in production, so that everything shows within a minute.
THRESHOLDS = {"group_stuck_min_s": 15, "group_stuck_visibility_factor": 0, "slow_hold_min_s": 15}

NOISY = ("werkzeug", "botocore", "queuewatch.client", "sources")
"""Loggers of harmless errors, which are hidden: the stand-in does not implement every call, and stops before its last clients."""


def demo_config(folder: Path, port: int) -> Config:
    """Return the configuration of the job: files in `folder`, results on `port`."""
    return Config.model_validate(
        {
            "spark": {"checkpoint_dir": str(folder / "checkpoint"), "master": "local[2]", "trigger_interval_s": 1},
            "source": {"spool": {"folder": str(folder / "spool"), "after_reading": "delete"}},
            "http": {"host": HOST, "port": port},
            "signal_log": {"path": str(folder / "signals.ndjson")},
            "queues": [{"pattern": "*", "thresholds": THRESHOLDS}],
        }
    )


@contextmanager
def open_shop(folder: Path) -> Iterator[Shop]:
    """Open the shop on the stand-in, instrumented and polled, with telemetry in the spool folder.

    The shop starts to work when its `start` is called, and is closed at the end of the block.
    """
    from moto.server import ThreadedMotoServer

    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    spool = f"spool:{folder / 'spool'}"
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    # The collector uses the standard AWS credential chain; these credentials are only valid for the stand-in.
    login = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_DEFAULT_REGION": "us-east-1"}
    before = {name: os.environ.get(name) for name in login}
    os.environ.update(login)
    stop = threading.Event()

    def instrument(client: Any, consumer: str) -> None:
        watch(client, to=spool, consumer=consumer)

    try:
        shop = Shop(endpoint, instrument)
        config = SqsCollectorConfig(endpoint_url=endpoint, interval_s=2, discovery_interval_s=30)
        poll = threading.Thread(target=run_collector, args=("sqs", config, spool, stop), name="demo-collector", daemon=True)
        poll.start()
        try:
            yield shop
        finally:
            stop.set()
            shop.stop()
            poll.join(timeout=5)
    finally:
        flush(2)
        server.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_demo(
    *,
    port: int,
    for_s: float | None,
    stop: threading.Event,
    on_address: Callable[[str], None],
    show: Callable[[SnapshotStore, str], None],
) -> SnapshotStore:
    """Run the demo until `stop` is set or `for_s` seconds have passed since the first results; returns the last results.

    `on_address` gets the URL of the page; `show` is called in a separate thread with the store and the URL.
    """
    from streaming.cli.service import run_service
    from streaming.config.logging import set_up_logging
    from streaming.config.service import LogSection

    store = SnapshotStore()
    set_up_logging(LogSection(level="error"))
    # On a busy machine a worker of the shop may still write its last events when the folder is removed.
    with tempfile.TemporaryDirectory(prefix="queuewatch-demo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "spool").mkdir()
        with open_shop(folder) as shop:
            threads = [
                threading.Thread(target=_open_when_watched, args=(shop, store, stop), name="demo-open", daemon=True),
            ]
            if for_s is not None:
                threads.append(threading.Thread(target=_end_after, args=(for_s, store, stop), name="demo-end", daemon=True))
            for thread in threads:
                thread.start()
            config = demo_config(folder, port)
            view: list[threading.Thread] = []

            def listening(server: RunningServer) -> None:
                on_address(server.url)
                view.append(threading.Thread(target=show, args=(store, server.url), name="demo-view", daemon=True))
                view[0].start()

            run_service(config, stop, store=store, on_listening=listening)
            # Wait until the view has released the terminal before anything else writes to it.
            for thread in view:
                thread.join(timeout=2)
    return store


def _open_when_watched(shop: Shop, store: SnapshotStore, stop: threading.Event) -> None:
    """Open the shop once there are results, so that problems are seen as they build up."""
    _wait_for_results(store, stop)
    if not stop.is_set():
        shop.start()


def _wait_for_results(store: SnapshotStore, stop: threading.Event) -> None:
    while store.latest is None and not stop.wait(0.2):
        pass


def _end_after(seconds: float, store: SnapshotStore, stop: threading.Event) -> None:
    _wait_for_results(store, stop)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop.wait(0.2):
        pass
    stop.set()
