"""Labels of alerts that name a queue's owner: joined from `queuewatch_queue_info`, which has the queue's tags."""

from __future__ import annotations

from typing import Final

from alerts.entry import QUEUE_IDENTITY
from alerts.signal_alert import BRIDGE

_INFO: Final = f"last_over_time(queuewatch_queue_info[{BRIDGE}])"

TAGGED: Final = (
    f"(%(expr)s) * on (%(on)s) group_left (%(tags)s) topk by (%(on)s) (1, max by (%(on)s, %(tags)s) ({_INFO})) "
    f"or (%(expr)s) unless on (%(on)s) {_INFO}"
)
"""An alert's expression with tags as labels, in the notation that Python and jsonnet share.

A queue without an info series still alerts, without the labels. `max` and `topk` leave one info series per queue, even while
two instances report it, because the join would fail with two. During a restart, an alert that bridges it keeps its labels:
without them it would be another alert, routed to somebody else.
"""


def tagged(expr: str, identity: tuple[str, ...], keep_labels: tuple[str, ...], tags: tuple[str, ...]) -> str:
    """Return the expression of an alert about a queue with the labels of `tags` joined on; unchanged if there are none."""
    if not tags or "queue" not in identity:
        return expr
    # Only the queue's own labels: the info series has no others of the alert, like `objective`.
    on = ", ".join((*QUEUE_IDENTITY, *keep_labels))
    return TAGGED % {"expr": expr, "on": on, "tags": ", ".join(f"tag_{tag}" for tag in tags)}
