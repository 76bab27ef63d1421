"""The queues of a load with settings and names, and the conversion from rows of indices to the wire format's table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tests.benchmarks.shape import Shape

if TYPE_CHECKING:
    from tests.benchmarks.lifecycles import Rows

SYSTEM: Final = "aws_sqs"
SCOPE: Final = "123456789012/eu-central-1"
RETENTION_S: Final = 4 * 86_400
DEAD_RETENTION_S: Final = 14 * 86_400

_SERVICES: Final = ("orders", "billing", "mail", "ledger", "search", "images", "events", "audit")


class Topology:
    """Queues `0 .. queues-1`, then their dead-letter queues. Arrays are indexed by queue."""

    def __init__(self, shape: Shape) -> None:
        n = shape.queues
        number = np.arange(n)
        self.ordered: npt.NDArray[np.bool_] = number % shape.fifo_every == shape.fifo_every - 1
        self.visibility_ms: npt.NDArray[np.int64] = np.array([10_000, 30_000, 60_000])[number % 3]
        # Every fifth queue has no redrive policy, so its poison messages come back forever.
        self.max_receives: npt.NDArray[np.int64] = np.where(number % 5 == 4, 0, np.array([3, 5, 4])[number % 3])
        with_dead_letter = np.flatnonzero(self.max_receives > 0)
        self.dead_letter: npt.NDArray[np.int64] = np.full(n, -1)
        self.dead_letter[with_dead_letter] = n + np.arange(len(with_dead_letter))
        self.total = n + len(with_dead_letter)
        share = (1.0 + number) ** -shape.queue_skew
        if shape.hot_ratio:
            share[0] = share[1:].sum() * shape.hot_ratio / (1 - shape.hot_ratio)
        self._share = share / share.sum()
        self._standard = np.where(self.ordered, 0, self._share)
        standard_per_s = shape.messages_per_s * float(self._standard.sum())
        self.backlog_ms = round(shape.live / standard_per_s * 1000)
        """How long a message of a standard queue waits so that `live` of them are waiting."""

        stems = [f"{_SERVICES[q % len(_SERVICES)]}-{q:04d}" for q in range(n)]
        ending = [".fifo" if ordered else "" for ordered in self.ordered]
        names = [stem + end for stem, end in zip(stems, ending, strict=True)]
        names += [f"{stems[q]}-dlq{ending[q]}" for q in with_dead_letter]
        self.queue_names: pa.Array = pa.array(names)
        workers = [f"{stem}-worker-{c}" for stem in stems for c in range(shape.consumers_per_queue)]
        self.collector = len(workers)
        self._consumers: pa.Array = pa.array([*workers, "sqs-attributes-1"])
        self._groups: pa.Array = pa.array([f"customer-{g}" for g in range(shape.groups_per_queue)])

    def draw_queues(self, rng: np.random.Generator, n: int, *, standard_only: bool = False) -> npt.NDArray[np.int64]:
        """Draw `n` queues; busy ones are more likely."""
        share = self._standard if standard_only else self._share
        cumulated = np.cumsum(share / share.sum())
        drawn: npt.NDArray[np.int64] = np.searchsorted(cumulated[:-1], rng.random(n), side="right")
        return drawn

    def attributes(self, queue: int, visible: int, in_flight: int) -> str:
        """Return the `attributes` of a `queue_state` event as JSON text."""
        names = self.queue_names
        values: dict[str, Any] = {
            "kind": "fifo" if names[queue].as_py().endswith(".fifo") else "standard",
            "visible": visible,
            "in_flight": in_flight,
            "delayed": 0,
        }
        if queue < len(self.visibility_ms):
            values |= {"visibility_timeout_s": int(self.visibility_ms[queue]) // 1000, "retention_s": RETENTION_S}
            if self.max_receives[queue]:
                values["max_receive_count"] = int(self.max_receives[queue])
                values["dead_letter_queue"] = names[int(self.dead_letter[queue])].as_py()
        else:
            values |= {"visibility_timeout_s": 30, "retention_s": DEAD_RETENTION_S}
        return json.dumps(values, separators=(",", ":"))

    def table(self, rows: Rows, attributes: list[str]) -> pa.Table:
        """Return the wire format's columns; names are dictionary columns, absent values nulls."""
        from tests.benchmarks.lifecycles import HEARTBEAT, SENT, TYPES

        n = len(rows)
        has_queue = rows["type"] != HEARTBEAT
        same = pa.array(np.zeros(n, dtype=np.int8))
        system = pa.DictionaryArray.from_arrays(same, pa.array([SYSTEM]))
        scope = pa.DictionaryArray.from_arrays(same, pa.array([SCOPE]))
        reported = pa.array(rows["attributes"], mask=rows["attributes"] < 0)
        return pa.table(
            {
                "v": pa.array(np.ones(n, dtype=np.int8)),
                "type": pa.DictionaryArray.from_arrays(pa.array(rows["type"].astype(np.int8)), pa.array(TYPES)),
                "at": pa.array(rows["at"]),
                "system": system,
                "scope": scope,
                "queue": _named(np.where(has_queue, rows["queue"], -1), self.queue_names),
                "message_id": uuid_text(rows["id_hi"], rows["id_lo"]),
                # A send reports its time only once, as `at`.
                "sent_at": _known(np.where(rows["type"] == SENT, 0, rows["sent_at"])),
                "first_received_at": _known(rows["first_received_at"]),
                "receive_count": _known(rows["receive_count"]),
                "group": _named(np.where(rows["group"] < 0, -1, rows["group"] % len(self._groups)), self._groups),
                "sequence": _sequence_text(rows["sequence"]),
                "consumer": _named(rows["consumer"], self._consumers),
                "invisible_until": _known(rows["invisible_until"]),
                "to_queue": _named(rows["to_queue"], self.queue_names),
                "new_message_id": uuid_text(rows["new_hi"], rows["new_lo"]),
                "attributes": pa.array(attributes, pa.string()).take(reported),
            }
        )


def _known(values: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values, mask=values == 0)


def _sequence_text(tails: npt.NDArray[np.int64]) -> pa.Array:
    # SQS uses twenty digits, more than fit in 64 bits.
    return pc.binary_join_element_wise("18849", _known(tails).cast(pa.string()), "")


def _named(index: npt.NDArray[Any], names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(index.astype(np.int32), mask=index < 0), names)


_HEX: Final = np.frombuffer("".join(f"{b:02x}" for b in range(256)).encode(), dtype=np.uint16)
# The five blocks of a UUID's text: where each begins in the text, and the range of the 32 digits that it shows.
_BLOCKS: Final = ((0, 0, 8), (9, 8, 12), (14, 12, 16), (19, 16, 20), (24, 20, 32))


def uuid_text(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> pa.Array:
    """Return the usual 36 characters of each id; null if both halves are 0."""
    known = (high != 0) | (low != 0)
    count = int(known.sum())
    raw = np.empty((count, 2), dtype=">u8")
    raw[:, 0], raw[:, 1] = high[known], low[known]
    digits = _HEX[raw.view(np.uint8)].view(np.uint8).reshape(count, 32)
    text = np.full((count, 36), ord("-"), dtype=np.uint8)
    for at, begin, end in _BLOCKS:
        text[:, at : at + end - begin] = digits[:, begin:end]
    offsets = np.zeros(len(high) + 1, dtype=np.int32)
    np.cumsum(known * 36, out=offsets[1:])
    bitmap = None if count == len(high) else pa.py_buffer(np.packbits(known, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(high), buffers)
