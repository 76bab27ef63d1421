"""The table of what is remembered of each queue: what is put in comes back, also from its bytes."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pyarrow as pa
import pytest

from streaming.core.reporting.report import ConsumerResults, Purge
from streaming.core.settings import QueueName
from streaming.judge.conditions.outcomes import ConsumerMark
from streaming.judge.counted_arrivals import CountedArrivals
from streaming.judge.knowledge.evidence import Claim, Evidence
from streaming.judge.knowledge.pauses import Pause
from streaming.judge.memory import memory_table, queue_memory
from streaming.judge.memory.memory_table import ROWS_PER_BLOCK, MemoryTable
from streaming.judge.memory.queue_memory import LISTS, NUMBERS, QueueMemory


def name(n: int) -> QueueName:
    """Return the name of a queue."""
    return QueueName("aws_sqs", "", f"q{n}")


def filled(kind: type[Any], first: int) -> Any:
    """Return a dataclass whose numbers are `first`, `first` + 1 and so on."""
    numbers = {one.name: one.type for one in dataclasses.fields(kind) if one.type in ("int", "float")}
    return kind(**{one: first + i if of == "int" else first + i + 0.25 for i, (one, of) in enumerate(numbers.items())})


def everything() -> QueueMemory:
    """Return a memory in which every field has a value of its own."""
    memory: QueueMemory = filled(QueueMemory, 100)
    memory.evidence, memory.counted_arrivals = filled(Evidence, 200), filled(CountedArrivals, 300)
    for i, claim in enumerate(("tracked", "ends", "sends", "rows")):
        setattr(memory.evidence, claim, filled(Claim, 400 + 10 * i))
    memory.evidence.at_counts, memory.evidence.standstill_lags_ms = [[7, 1, 2, 0], [9, 3, 0, 0]], [3]
    memory.counted_arrivals.quiet_ids = ["a\nb", "c"]
    memory.since, memory.basis, memory.noisy = {"backlog": 5}, "partial", {"g": 6}
    memory.consumer_marks = [ConsumerMark(8, {"c": ConsumerResults(1, 2)})]
    memory.processed_by_bucket, memory.hold_weights, memory.strategies = {3: 4}, {3: 0.1}, {"ack": {"c": [1, 2]}}
    memory.purges, memory.pauses = [Purge(1, 2, 3, 4, 5, 6)], [Pause(1, 2, 3, True)]
    memory.at_work, memory.turns = {"c": 7}, {8: 9}
    return memory


def test_every_field_is_stored() -> None:
    """A field that was not would be lost with every evaluation."""
    memory = everything()
    defaults = dataclasses.asdict(QueueMemory())
    stored = dataclasses.asdict(memory)
    assert [field for field in stored if stored[field] == defaults[field]] == []
    table = MemoryTable({name(0): QueueMemory(), name(1): memory})
    assert (table[name(0)], table[name(1)]) == (QueueMemory(), memory)
    read = MemoryTable.from_bytes(table.to_bytes())
    assert (read[name(0)], read[name(1)]) == (QueueMemory(), memory)


def test_a_lookup_is_a_copy() -> None:
    """Only `put` stores it."""
    table = MemoryTable({name(0): QueueMemory(since={"backlog": 1})})
    table[name(0)].since["backlog"] = 2
    assert table[name(0)].since == {"backlog": 1}


def test_only_blocks_of_queues_that_changed_are_compressed_again() -> None:
    """Queues change, come and go: what is read back is what is remembered, and other blocks stay as they were."""
    table = MemoryTable({name(n): QueueMemory(since={"backlog": n}) for n in range(2 * ROWS_PER_BLOCK + 80)})
    assert MemoryTable.from_bytes(table.to_bytes()) == table
    before = list(table._blocks)
    table.put(name(ROWS_PER_BLOCK), QueueMemory(since={"stalled": 7}))
    table.put(name(1_000), QueueMemory())
    assert MemoryTable.from_bytes(table.to_bytes()) == table
    assert [now is then for now, then in zip(table._blocks, before, strict=True)] == [True, False, False]
    left = {one: memory for one, memory in table.items() if one not in (name(3), name(599), name(1_000))}
    table.forget([name(599), name(3), name(1_000), name(5_000)])
    assert dict(table) == left
    assert MemoryTable.from_bytes(table.to_bytes()) == table
    table.forget(left)
    assert MemoryTable.from_bytes(table.to_bytes()) == MemoryTable()


def test_failures_are_remembered_by_column() -> None:
    """Queues for which QueueFailing fired at a time or later are found, and those for which it never fired are not."""
    table = MemoryTable({name(n): QueueMemory() for n in range(3)})
    table.to_bytes()
    table.fail([name(1), name(2)], 5)
    table.fail([name(2)], 9)
    assert table.failed_since(9) == {name(2): 9}
    assert table.failed_since(0) == {name(1): 5, name(2): 9}
    assert MemoryTable.from_bytes(table.to_bytes())[name(2)].failed_at == 9


def test_what_only_another_release_has_is_left_out_and_what_it_lacked_has_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and lists are stored with their names."""
    names = {"evidence.least_late_ms": "removed_number", "noisy": "removed_list"}
    with monkeypatch.context() as patch:
        patch.setattr(memory_table, "NUMBERS", tuple(names.get(one, one) for one in NUMBERS))
        patch.setattr(queue_memory, "LISTS", tuple(names.get(one, one) for one in LISTS))
        stored = MemoryTable({name(0): everything()}).to_bytes()
    expected = everything()
    expected.evidence.least_late_ms, expected.noisy = Evidence().least_late_ms, {}
    assert MemoryTable.from_bytes(stored)[name(0)] == expected


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_damaged_bytes_are_refused(cut: int) -> None:
    """No part of them is used."""
    stored = MemoryTable({name(n): everything() for n in range(3)}).to_bytes()
    with pytest.raises(ValueError, match="the table of queues is damaged"):
        MemoryTable.from_bytes(stored[:-cut])


@pytest.mark.parametrize(
    "head", [b"[]", b"{}", b'{"queues":[["a","b"]],"numbers":[]}', b'{"queues":[["a","b","c"]],"numbers":null}']
)
def test_a_table_that_holds_something_else_is_refused(head: bytes) -> None:
    """As any other damage is."""
    packed = pa.Codec("zstd").compress(head, asbytes=True)
    with pytest.raises(ValueError, match="the table of queues is damaged"):
        MemoryTable.from_bytes(struct.pack("<II", len(packed), len(head)) + packed)
