"""The demo's shop: it has the troubles it announces, and no others build up unnoticed."""

from __future__ import annotations

import json
import threading
from typing import Any

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
