"""Loads of an uncommon shape are what they are called, and the curves show what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator

from sources.wire import decode_records
from tests.benchmarks.curves import draw
from tests.benchmarks.lifecycles import Lifecycles
from tests.benchmarks.lines import json_records
from tests.benchmarks.processes import memory_of
from tests.benchmarks.shape import Shape
from tests.benchmarks.shapes import LongFifo


def test_a_hot_queue_has_its_share_of_the_messages() -> None:
    """The others share the rest evenly."""
    queues = Lifecycles(Shape(queues=20, queue_skew=0, hot_ratio=0.9)).take(20_000)["queue"].to_pylist()
    (_, most), *others = Counter(queues).most_common()
    assert 0.87 < most / len(queues) < 0.93
    assert max(n for _, n in others) / len(queues) < 0.02


def test_a_long_fifo_queue_delivers_the_head_of_each_group() -> None:
    """Every message is processed in the order of its group, and as many are sent."""
    load = LongFifo(messages=900, groups=30, start_ms=1_700_000_000_000)
    values = [*load.backlog(), *load.step(), *load.step()]
    decoded = decode_records(values)
    assert not decoded.invalid
    assert len(decoded.events) == load.events == 1 + 900 + 2 * 999
    waiting: dict[str, deque[str]] = {}
    for event in _events(values):
        if event["type"] == "sent":
            waiting.setdefault(str(event["group"]), deque()).append(str(event["message_id"]))
        elif event["type"] == "deleted":
            assert waiting[str(event["group"])].popleft() == event["message_id"]
    assert sum(map(len, waiting.values())) == 900


def _events(values: list[bytes]) -> Iterator[dict[str, object]]:
    for value in values:
        yield from map(json.loads, value.splitlines())


def test_records_hold_at_most_five_hundred_events() -> None:
    """The last one holds the rest."""
    assert [value.count(b"\n") + 1 for value in json_records([{"n": n} for n in range(1_100)])] == [500, 500, 100]


def test_memory_counts_children() -> None:
    """A child's fifty megabytes are counted for its parent."""
    hold = "import sys; kept = bytearray(b'x') * 50_000_000; print('held', flush=True); sys.stdin.read()"
    before = memory_of(os.getpid())
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = memory_of(os.getpid())
        child.communicate()
    assert during - before > 45_000_000


def test_the_curves_have_every_measured_size() -> None:
    """A line for each kind of step, with a point for each number of queues; and one by live messages."""
    figures = [
        {"key": f"queues.{n}.{step}", "value": n / 100} for n in (200, 10_000) for step in ("touched", "untouched", "each")
    ]
    picture = draw([*figures, {"key": "scale.100000", "value": 300}, {"key": "scale.5000000", "value": 2_000}])
    assert picture.count("<polyline") + picture.count("<path") >= 3
    for words in ("none touched", "known queues", "live messages", "5 million"):
        assert words in picture
