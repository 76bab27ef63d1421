"""What a broker's counts are worth: for all that compares with them."""

from __future__ import annotations

COUNT_ERROR_RATIO = 0.06
"""A count contradicts what is tracked, or another count, only if it differs by more than this share…"""
COUNT_LAG_MS = 90_000
"""…from every state of this time before it."""
EXACT_SYSTEMS = frozenset({"activemq"})
"""Systems whose counts are exact: a smaller one shows that messages have left."""
EXACT_OLDEST_SYSTEMS = frozenset({"activemq", "cloudflare_queues"})
"""Systems that report when their oldest message was sent; of others it may be derived from an age, which is rounded and old."""
COUNTS_FRESH_MS = 600_000
"""Older counts are not used as current."""
