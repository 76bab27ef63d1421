"""The demo's shop: its troubles are those it announces, and no others build up behind them."""

from __future__ import annotations

import json
import threading
from typing import Any

from streaming.demo.shop import INVOICES, INVOICES_VISIBILITY_S, Shop


class Waits(threading.Event):
    """A stop event on which nobody really waits; it notes for how long they would have."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once."""
        self.seconds.append(timeout)
        return False


def test_a_worker_that_sits_on_an_invoice_goes_on_when_its_window_ends(moto_sqs: Any) -> None:
    """Or both workers would hang for ever after two windows, and the queue would end as stopped."""
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
    assert (left[names[0]], left[names[1]]) == ("0", "1")  # the good one is done, the other comes back
