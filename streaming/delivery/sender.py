"""Send records to each destination from its own thread: an unavailable one delays neither the job nor the others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from sinks.prometheus import Family
from sinks.records import Destination, Record
from streaming.delivery.outbox import Outbox

FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 30.0
_LOG_AGAIN_S: Final = 60.0
_log = structlog.get_logger(__name__)


class Delivery:
    """One destination: `put` stores a batch's records in the outbox at once, and a thread sends them when it can."""

    def __init__(self, name: str, destination: Destination, outbox: Outbox, *, first_retry_s: float = FIRST_RETRY_S) -> None:
        self.name = name
        self._destination = destination
        self._outbox = outbox
        self._first_retry_s = first_retry_s
        self._changed = threading.Condition()
        self._stopping = False
        self._news = True
        self._last_put: int | None = None
        """The batch of the latest `put`."""
        self._tries: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name=f"queuewatch-{name}", daemon=True)
        self._thread.start()

    def put(self, records: Sequence[Record], batch_id: int) -> None:
        """Store the records of a batch until they are delivered. Raises `OSError` when the checkpoint cannot be written."""
        # The first batch of a process, and one that runs again, may have had another result before: an empty one replaces it.
        may_be_known = self._last_put is None or batch_id <= self._last_put
        self._last_put = batch_id
        if not records and not may_be_known:
            return
        self._outbox.put(batch_id, records)
        with self._changed:
            self._news = True
            self._changed.notify_all()

    def close(self, within_s: float = 3.0) -> None:
        """Keep sending for at most `within_s`; the remainder waits in the checkpoint for the next start."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(within_s)
        if waiting := self._outbox.records:
            _log.warning("undelivered_records_wait", destination=self.name, records=waiting, until="the next start")
        if not self._thread.is_alive():
            self._destination.close()

    def samples(self) -> dict[str, float]:
        """Return the records waiting and given up, and the batches delivered and failed, by name."""
        return {
            "waiting": self._outbox.records,
            "given_up": self._outbox.given_up,
            "ok": self._tries["ok"],
            "failed": self._tries["failed"],
        }

    def _run(self) -> None:
        wait_s, logged_at_s = 0.0, 0.0
        while self._wait(wait_s):
            try:
                while deliver_next(self._outbox, self._destination):
                    self._tries["ok"] += 1
                    if wait_s:
                        _log.info("destination_back", destination=self.name)
                    wait_s = 0.0
            except Exception as error:
                # The thread must survive any error. Nothing is lost: the entry waits in the checkpoint.
                self._tries["failed"] += 1
                if not wait_s or time.monotonic() - logged_at_s >= _LOG_AGAIN_S:
                    logged_at_s = time.monotonic()
                    _log.error(
                        "destination_failed",
                        destination=self.name,
                        error=repr(error),
                        waiting=self._outbox.records,
                        # An outage needs no traceback. Anything else is a defect.
                        exc_info=not isinstance(error, OSError),
                    )
                wait_s = min(LAST_RETRY_S, max(self._first_retry_s, 2 * wait_s))

    def _wait(self, wait_s: float) -> bool:
        """Wait until there is something to send or retry; False when the delivery is closed."""
        with self._changed:
            if wait_s:
                self._changed.wait_for(lambda: self._stopping, wait_s)
                return not self._stopping
            self._changed.wait_for(lambda: self._stopping or self._news)
            going = self._news or not self._stopping
            self._news = False
            return going


def deliver_next(outbox: Outbox, destination: Destination) -> bool:
    """Send the oldest waiting batch; False when none waits. If the destination raises, the batch keeps waiting."""
    entry = outbox.oldest()
    if entry is None:
        return False
    batch_id, records = entry
    destination.append(records, batch_id)
    outbox.delivered()
    return True


class Deliveries:
    """All destinations of one kind of record: each gets every record."""

    def __init__(self, deliveries: Iterable[Delivery]) -> None:
        self._deliveries = tuple(deliveries)

    def put(self, records: Sequence[Record], batch_id: int) -> None:
        """Store the records of a batch for every destination."""
        for delivery in self._deliveries:
            delivery.put(records, batch_id)


def delivery_families(deliveries: Sequence[Delivery]) -> Iterable[Family]:
    """Return the state of deliveries for `/metrics`."""
    samples = {delivery.name: delivery.samples() for delivery in deliveries}
    return (
        Family("queuewatch_outbox_records", [({"destination": name}, one["waiting"]) for name, one in samples.items()]),
        Family(
            "queuewatch_outbox_lost_records_total", [({"destination": name}, one["given_up"]) for name, one in samples.items()]
        ),
        Family(
            "queuewatch_outbox_deliveries_total",
            [
                ({"destination": name, "result": result}, one[result])
                for name, one in samples.items()
                for result in ("failed", "ok")
            ],
        ),
    )
