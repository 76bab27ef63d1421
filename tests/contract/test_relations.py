"""What must not matter to the lines of a replay: other queues, the date, names, the order of arrival, and what happens later."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.replaying import Line, Lines, replayed
from tests.core.driving import T0
from tests.judge.random_traffic import RandomQueue

pytestmark = pytest.mark.simulation

Event = dict[str, Any]
UNTIL_S = 420
SEED = 23
"""With this one, two queues have slow consumers, fail and outlast their windows."""
DAY_MS = 86_400_000
NAMES = ("queue", "message_id", "group", "consumer", "batch_id")


def events_of(seed: int) -> list[Event]:
    """Return random events of two queues, in order."""
    r = random.Random(seed)
    events = [event for n in range(2) for event in RandomQueue(r, f"q{n}", varied=False).events(UNTIL_S)]
    return sorted(events, key=lambda event: int(event["at"]))


EVENTS = events_of(SEED)


def lines_of(events: Sequence[Event], folder: Path, until_s: float = UNTIL_S) -> list[Line]:
    """Return the lines about queues; the others count what was read. Announcements are hashes of the names and the time."""
    found: Lines = replayed(events, folder, until_s=until_s, apart_s=5)
    return [line | {"announcement": ""} for line in found.lines if "queue" in line or "queue" in line["labels"]]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The lines of the events as they are."""
    lines = lines_of(EVENTS, tmp_path_factory.mktemp("recording"))
    assert {"QueueFailing", "WindowTooShort", "SlowConsumer"} <= {line["signal"] for line in lines if "signal" in line}
    return lines


COPIES: dict[str, Callable[[Event], Event]] = {
    "another queue": lambda e: e | {"queue": f"a-{e['queue']}"},
    "the same name in another scope": lambda e: e | {"scope": "elsewhere"},
    "the same name in another system": lambda e: e | {"system": "activemq"},
}


@pytest.mark.parametrize("copy", COPIES)
def test_other_queues_do_not_matter(expected: list[Line], tmp_path: Path, copy: str) -> None:
    """Even if all ids of messages, groups and consumers are the same."""
    lines = lines_of([e for event in EVENTS for e in (COPIES[copy](event), event)], tmp_path)
    assert [line for line in lines if _queue(line) in {_queue(known) for known in expected}] == expected


def _queue(line: Line) -> tuple[str, str, str]:
    about = {"scope_id": line["scope"], **line} if "scope" in line else line["labels"]
    return about["system"], about["scope_id"], about["queue"]


def test_the_date_does_not_matter(expected: list[Line], tmp_path: Path) -> None:
    """All is a day later."""
    later = json.loads(_moved(json.dumps(EVENTS), DAY_MS))
    lines = lines_of(later, tmp_path, UNTIL_S + DAY_MS / 1000)
    assert json.loads(_moved(json.dumps(lines), -DAY_MS)) == expected


def _moved(text: str, by_ms: int) -> str:
    """Add to all epoch times in the text, which are milliseconds or seconds with a fraction."""
    text = re.sub(r"\b17\d{11}\b", lambda found: str(int(found[0]) + by_ms), text)
    return re.sub(r"\b17\d{8}\.\d+", lambda found: str(round(float(found[0]) + by_ms / 1000, 3)), text)


def test_names_do_not_matter(expected: list[Line], tmp_path: Path) -> None:
    """Those of queues, messages, groups, consumers and batches."""
    r, names = random.Random(SEED), {}
    for name in sorted({event[field] for event in EVENTS for field in NAMES if field in event}):
        names[name] = f"x{r.randrange(16**8):08x}{'.fifo' if name.endswith('.fifo') else ''}"
    renamed = [event | {field: names[event[field]] for field in NAMES if field in event} for event in EVENTS]
    lines = json.dumps(lines_of(renamed, tmp_path))
    for old, new in names.items():
        lines = lines.replace(new, old)
    assert sorted(json.dumps(line) for line in json.loads(lines)) == sorted(map(json.dumps, expected))


def test_the_order_of_arrival_and_repetitions_do_not_matter(expected: list[Line], tmp_path: Path) -> None:
    """Within the lateness."""
    r = random.Random(SEED)
    arrived = r.sample(EVENTS[1:], len(EVENTS) - 1) + r.sample(EVENTS, len(EVENTS) // 3)
    assert lines_of([EVENTS[0], *arrived], tmp_path) == expected


def test_what_happens_later_does_not_matter(expected: list[Line], tmp_path: Path) -> None:
    """Until a step in the middle, the lines of a recording that was cut there are the same."""
    end = int(EVENTS[0]["at"]) + 240_000
    lines = lines_of([event for event in EVENTS if event["at"] <= end], tmp_path, (end - T0) / 1000)
    assert lines == [line for line in expected if line["at"] <= end]
