"""How long consumers with a prefetch window take to finish the next message, for as long as they hold any.

The time for which it holds a message includes the wait for the message's turn: 1,000 messages of a second each are held for a
quarter of an hour, but one is finished every second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

TURNS_KEPT_MS = 86_400_000


def turns_with(turns: Mapping[int, int], at_work: Mapping[str, int], finished: Mapping[str, int], now: int) -> dict[int, int]:
    """Return `bucket -> when a turn that long ended last` with the turns that ended since the last evaluation.

    `at_work`: consumer -> since when it worked on its oldest message then; `finished`: when it finished its latest one.
    """
    found = {bucket: at for bucket, at in turns.items() if at > now - TURNS_KEPT_MS}
    for consumer, since in at_work.items():
        ended_at = finished.get(consumer, 0)
        if ended_at > since:
            # Two buckets per doubling.
            bucket = math.floor(2 * math.log2(ended_at - since))
            found[bucket] = max(found.get(bucket, 0), ended_at)
    return found


def longest_turn_ms(turns: Mapping[int, int]) -> float | None:
    """Return how long the longest turn was, at most; None where none has ended."""
    return 2 ** ((max(turns) + 1) / 2) if turns else None
