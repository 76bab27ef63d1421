"""Made-up but realistic snapshots: a shop's bad afternoon, hostile names, and many queues at once."""

from tests.sinks.fakes.hostile import HOSTILE_NAMES, hostile_snapshot
from tests.sinks.fakes.many import many_queues
from tests.sinks.fakes.shop import shop_past, shop_snapshot
from tests.sinks.fakes.views import NOW_MS, SCOPE, age_counts, finding, queue_view, receives

__all__ = [
    "HOSTILE_NAMES",
    "NOW_MS",
    "SCOPE",
    "age_counts",
    "finding",
    "hostile_snapshot",
    "many_queues",
    "queue_view",
    "receives",
    "shop_past",
    "shop_snapshot",
]
