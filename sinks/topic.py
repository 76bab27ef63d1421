"""Records in a Kafka topic, which connects when there is something to send, and reconnects after a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sinks.records import Record, Undelivered

_CLOSE_WITHIN_S = 2.0


class RecordTopic:
    """Writes one Kafka record per record, with its key.

    `connect` returns a kafka-python KafkaProducer, preferably from `durable_producer`. A record that was sent twice has the same
    key and value: compaction keeps one copy, and a reader can deduplicate by key.
    """

    def __init__(self, connect: Callable[[], Any], topic: str, *, timeout_s: float = 30.0) -> None:
        self._connect = connect
        self._topic = topic
        self._timeout_s = timeout_s
        self._producer: Any = None

    def append(self, records: Sequence[Record], batch_id: int) -> None:
        """Send the records and wait until all are acknowledged. Raises `Undelivered`."""
        del batch_id  # A second run's records carry the first one's keys.
        if not records:
            return
        try:
            if self._producer is None:
                self._producer = self._connect()
            sent = [self._producer.send(self._topic, key=key.encode(), value=line.encode()) for key, line in records]
            for record in sent:
                record.get(timeout=self._timeout_s)
        except Exception as error:  # kafka-python's errors have no common base that is an OSError
            self.close()
            raise Undelivered(
                f"the topic {self._topic!r} did not accept {len(records)} records: {str(error) or type(error).__name__}; check "
                "that the brokers answer, that the topic exists and that this user may write to it"
            ) from error

    def close(self) -> None:
        """Close the connection if there is one; records that were not acknowledged are given up. Never raises."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.close(timeout=_CLOSE_WITHIN_S)
        except Exception:
            # kafka-python waits for all records first. If one is not acknowledged in time, it raises, and its thread and its
            # connections would stay.
            producer._sender.force_close()


def durable_producer(connection: Mapping[str, Any]) -> Any:
    """Return a KafkaProducer that counts a record as sent only when all replicas have it.

    `connection` holds kafka-python's settings: `bootstrap_servers` and credentials. Raises if no broker answers.
    """
    from kafka import KafkaProducer

    durable = {"acks": "all", "enable_idempotence": True, "client_id": "queuewatch-out", "linger_ms": 5}
    return KafkaProducer(**{**durable, **connection})
