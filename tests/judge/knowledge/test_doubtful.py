"""Few waiting messages that the broker's count does not show may have been received by a consumer that does not report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streaming.core.settings import QueueName, Settings
from streaming.judge.history.window import COLUMN, FIELDS, Window
from streaming.judge.knowledge.evidence import Claim, Evidence
from streaming.judge.knowledge.queue import least_ages
from tests.contract.replaying import ev
from tests.core.driving import T0, run_steps
from tests.judge.driving import in_steps, judged

Events = list[dict[str, Any]]


def polls(since_s: int, until_s: int, in_flight: int = 0, visible: int = 0) -> Events:
    """A count every 30 s."""
    about = {"visibility_timeout_s": 120, "visible": visible, "in_flight": in_flight, "delayed": 0}
    return [ev("queue_state", at, attributes=about) for at in range(since_s, until_s, 30)]


def said(events: Events, at_s: int) -> tuple[int | None, float | None]:
    """Return the published visible depth, and the second at which the oldest message was sent."""
    view = judged(in_steps(sorted(events, key=lambda e: e["at"]), 10, at_s)).snapshots[-1].queues[0]
    oldest = view.oldest_ms.get("all")
    return view.visible, None if oldest is None else (oldest - T0) / 1000


QUIET: Events = [
    *polls(0, 900),
    *(ev("sent", at, message_id=f"m{at}") for at in (65, 245, 425)),
    *(ev("received", at, message_id=f"m{at - 1}", receive_count=1) for at in (66, 246, 426)),
    *(ev("deleted", at, message_id=f"m{at - 2}") for at in (67, 247, 427)),
]
"""A quiet queue whose counts have only ever said that it is empty: with half of its consumers, they would say the same."""


@pytest.mark.simulation
def test_a_message_that_the_count_does_not_show_has_no_age() -> None:
    """The count was taken after its send; before that it waits."""
    events = [*QUIET, ev("sent", 615, message_id="unseen")]
    assert said(events, 620) == (1, 615)
    assert said(events, 630) == (0, None)


@pytest.mark.simulation
def test_a_message_sent_since_the_count_has_an_age_that_is_not_called_exact() -> None:
    """Once a count shows it, it is."""
    events = [*(e for e in QUIET if e["at"] < T0 + 660_000), ev("sent", 635, message_id="waits"), *polls(660, 661, visible=1)]
    steps = in_steps(sorted(events, key=lambda e: e["at"]), 10, 660)
    known = {(s.at_ms - T0) // 1000: s.queues[0] for s in judged(steps).snapshots}
    assert [known[at].oldest_ms.get("all") for at in (640, 650, 660)] == [T0 + 635_000] * 3
    assert ["all" in known[at].exact_ages for at in (640, 650, 660)] == [False, False, True]


@pytest.mark.simulation
def test_a_message_that_was_received_has_one() -> None:
    """Its consumer reports, so its end would be known."""
    held = [ev("sent", 601, message_id="held"), ev("received", 602, message_id="held", receive_count=1)]
    events = [*(e for e in QUIET if e["at"] < T0 + 610_000), *polls(630, 660, in_flight=1)]
    assert said([*events, *held, ev("sent", 615, message_id="unseen")], 640) == (0, 601)


@pytest.mark.parametrize(("waiting", "expected"), [(3, (0, None)), (4, (4, 611))], ids=["three", "four"])
def test_many_are_not_received_by_one_consumer_alone(waiting: int, expected: tuple[int, float | None]) -> None:
    """Of that many, the consumers that report would have received some: the count is late."""
    assert said([*QUIET, *(ev("sent", 611 + n, message_id=f"w{n}") for n in range(waiting))], 630) == expected


@pytest.mark.simulation
def test_counts_that_agree_on_messages_are_late_when_they_show_none() -> None:
    """Eight counts of nine messages showed that all consumers report."""
    busy: Events = []
    for at in range(600):
        about = {"message_id": f"m{at}"}
        busy += [ev("sent", at, **about), ev("received", at + 0.5, receive_count=1, **about), ev("deleted", at + 8.5, **about)]
    events = [*busy, *polls(0, 1, 0), *polls(30, 600, 9), *polls(630, 700), ev("sent", 612, message_id="waits")]
    assert said(events, 630) == (1, 612)


def every_four_seconds(*, unseen: bool) -> Events:
    """A message each in a group of its own, received in turn by two consumers; the second may be unseen."""
    out: Events = [ev("queue_state", at, "q.fifo", attributes={"visible": 0, "in_flight": 0, "kind": "fifo"}) for at in (0, 30)]
    for i in range(8):
        about = {"message_id": f"m{i}", "group": f"g{i}", "sequence": str(i)}
        out.append(ev("sent", 4 * i, "q.fifo", **about))
        if not (i % 2 and unseen):
            out += [ev("received", 4 * i + 0.5, "q.fifo", receive_count=1, **about), ev("deleted", 4 * i + 3, "q.fifo", **about)]
    return out


@pytest.mark.parametrize(("unseen", "basis"), [(False, "messages"), (True, "partial")], ids=["both seen", "one unseen"])
def test_a_head_that_was_overtaken_by_a_much_younger_message_was_received_unseen(unseen: bool, basis: str) -> None:
    """Four receives are too few to count, but one of a message sent 20 s later is enough in a queue that keeps the order."""
    events = sorted(every_four_seconds(unseen=unseen), key=lambda e: e["at"])
    view = judged(in_steps(events, 10, 30)).snapshots[-1].queues[0]
    assert view.basis == basis
    assert view.oldest_ms.get("all", T0 + 28_000) == T0 + 28_000, "only the last message is still there"


@pytest.mark.parametrize(
    ("sends", "later", "known"), [(40, 30, True), (40, 25, False), (400, 345, True), (400, 335, False), (5, 5, False)], ids=str
)
def test_rows_are_all_there_only_if_nearly_all_messages_have_later_events(sends: int, later: int, known: bool) -> None:
    """Of a tenth the consumers may be unseen, and of twenty messages, or a fifth of few, the later event is still to come.

    Of five messages, all may have gone to one of two consumers.
    """
    now = T0 + 600_000
    steps = [(600_000, [ev("sent", 590, message_id="x"), *polls(600, 601, in_flight=1)])]
    summary = run_steps(steps, Settings())[-1].queues[QueueName("aws_sqs", "", "q")]
    values = np.zeros((2, len(FIELDS)), dtype=np.int64)
    values[1, COLUMN["sent"]], values[1, COLUMN["touched"]] = sends, later
    past = Window(np.array([T0, now]), values)
    evidence = Evidence(seen_at=now, rows=Claim(T0, 20))
    ages = least_ages(evidence, summary, past, summary.depths[-1], now, ends_reported=False)
    assert ("all" in ages) is known
