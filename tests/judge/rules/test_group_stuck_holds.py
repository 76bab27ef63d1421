"""A stuck group of which only half of the consumers report."""

from __future__ import annotations

import pytest

from tests.contract.replaying import ev
from tests.core.driving import T0
from tests.judge.driving import in_steps, judged

QUEUE = "orders.fifo"


def test_it_stays_stuck_while_consumers_that_do_not_report_receive_its_head() -> None:
    """Of the receives of its head, some are seen; it is deleted unseen at last, and nobody receives it again."""
    about = {"message_id": "head", "group": "g", "sequence": "1"}
    events = [
        ev("sent", 0, QUEUE, **about),
        ev("sent", 1, QUEUE, message_id="next", group="g", sequence="2"),
    ]
    # Deliveries that nobody reported, and more moves to the unseen than to the seen.
    for count in (1, 2, 3, 6, 10, 11, 14):
        at = 2 + 31 * (count - 1)
        events.append(
            ev("received", at, QUEUE, receive_count=count, consumer="w", invisible_until=T0 + (at + 30) * 1000, **about)
        )
    # Other groups show that some consumers do not report.
    for n in range(60):
        other = {"message_id": f"o{n}", "group": f"h{n}", "sequence": str(n + 10)}
        events.append(ev("received", 2 + 5 * n, QUEUE, receive_count=2, consumer="w", **other))
        events.append(ev("deleted", 3 + 5 * n, QUEUE, consumer="w", **other))
    events.sort(key=lambda e: e["at"])
    changes = [
        (at // 1000, status)
        for at, signal, status, _ in judged(in_steps(events, 5, 1_000)).changes_seen()
        if signal == "GroupStuck"
    ]
    assert [status for _, status in changes] == ["firing", "resolved"], changes
    last_s = 2 + 31 * 13
    assert last_s + 240 < changes[1][0] <= last_s + 360


def unseen(window_s: int, deliveries: tuple[int, ...], apart_s: int) -> tuple[float, float]:
    """Return when a group began to be stuck, and for how long it was after the last delivery of its head that was seen.

    `deliveries`: those that were reported, by receive count; they are `apart_s` apart. The others are unseen, and so is the end.
    """
    about = {"message_id": "head", "group": "g", "sequence": "1"}
    events = [
        ev("queue_state", 0, QUEUE, attributes={"kind": "fifo", "visibility_timeout_s": window_s}),
        ev("sent", 0, QUEUE, **about),
        ev("sent", 1, QUEUE, message_id="next", group="g", sequence="2"),
    ]
    for count in deliveries:
        at = 2 + apart_s * (count - 1)
        events.append(ev("received", at, QUEUE, receive_count=count, consumer="w", **about))
        if apart_s < window_s:
            events.append(ev("released", at + 1, QUEUE, consumer="w", **about))
    last_s = 2 + apart_s * (deliveries[-1] - 1)
    for n in range(last_s // 60):
        other = {"message_id": f"o{n}", "group": f"h{n}", "sequence": str(n + 10), "consumer": "w"}
        events += [ev("received", 60 * n, QUEUE, receive_count=2, **other), ev("deleted", 60 * n + 1, QUEUE, **other)]
    events.sort(key=lambda e: e["at"])
    steps = in_steps(events, 60, last_s + 6 * window_s * 2)
    changes = [(at // 1000, status) for at, signal, status, _ in judged(steps).changes_seen() if signal == "GroupStuck"]
    assert [status for _, status in changes] == ["firing", "resolved"], changes
    return changes[0][0], changes[1][0] - last_s


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("window_s", "apart_s", "lasts_s"),
    [
        pytest.param(240, 241, 5 * 480, id="windows of minutes: ten deliveries"),
        pytest.param(1_800, 60, 3_600, id="the head comes back each minute"),
        pytest.param(1_800, 1_801, 5 * 1_801, id="it comes back when its window ends"),
    ],
)
def test_with_long_windows_it_does_not_stay_stuck_for_half_a_day(window_s: int, apart_s: int, lasts_s: int) -> None:
    """After an hour it is enough that the others received the head five times in a row, as its receive counts show."""
    deliveries = (1, 2, 4, 5, 7, *range(8, 75)) if apart_s == 60 else (1, 2, 4, 5, 7)
    _, stuck_s = unseen(window_s, deliveries, apart_s)
    assert lasts_s <= stuck_s <= lasts_s + 120
