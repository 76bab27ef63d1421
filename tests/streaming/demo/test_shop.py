"""The demo's shop: it has the troubles it announces, and no others build up unnoticed."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.demo.run import NOISY, open_shop
from streaming.demo.shop import INVOICES, INVOICES_VISIBILITY_S, Shop


class Waits(threading.Event):
    """A stop event that does not really wait; it records the requested durations."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once."""
        self.seconds.append(timeout)
        return False


def test_a_worker_that_holds_an_invoice_continues_when_its_visibility_timeout_ends(moto_sqs: Any) -> None:
    """Otherwise both workers would hang forever after two timeouts, and the queue would be reported as stopped."""
    shop = Shop(moto_sqs.endpoint, lambda *_: None)
    shop.stopping = waits = Waits()
    client = shop.client()
    url = shop.urls[INVOICES]
    for hangs in (True, False):
        client.send_message(QueueUrl=url, MessageBody=json.dumps({"order": 5, "hangs": hangs}))
    for _ in range(2):
        shop._work_on_invoices(client)
    assert None not in waits.seconds
    assert INVOICES_VISIBILITY_S in waits.seconds
    names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert (left[names[0]], left[names[1]]) == ("0", "1")  # the good one is finished, the other becomes visible again


@pytest.fixture
def levels() -> Iterator[None]:
    """Restore the levels of the loggers that the demo silences."""
    before = {name: logging.getLogger(name).level for name in NOISY}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.slow
@pytest.mark.usefixtures("levels")
def test_nothing_of_the_shop_goes_on_after_the_job_has_failed(tmp_path: Path) -> None:
    """Its threads and the collector would go on against a stand-in that is gone."""
    (tmp_path / "spool").mkdir()
    running: list[set[str]] = []

    def fail() -> None:
        with open_shop(tmp_path) as shop:
            shop.start()
            running.append(demo_threads())
            raise OSError("the port is taken")

    with pytest.raises(OSError, match="the port is taken"):
        fail()
    assert {"demo-collector", "demo-newsletter"} < running[0]
    assert demo_threads() == set()


def demo_threads() -> set[str]:
    """Return the names of the demo's threads."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("demo-")}
