"""A stuck group of which only half of the consumers report."""

from __future__ import annotations

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
