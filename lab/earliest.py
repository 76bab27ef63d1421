"""The first observation that distinguishes a fault from health: health has it in less than one case of a thousand.

Everything here follows from the parameters of the simulation. No rule's limit or default is used, so that a rule can be compared
with what is possible. Times are epoch milliseconds, and `NEVER` where there is no such observation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import NormalDist

from lab.consumer import SIGMA
from lab.history import NEVER, Delivery

CHANCE = 1 / 1000
"""Health must have an observation more rarely than this before it says anything: per pause, per message, per count."""
MOST_OF_RUSH = 120
"""Events after which it is settled whether there was a rush: twice as many as usual show within some thirty."""
FAILED = ("timed_out", "released", "dropped")


def longest_pause_s(rate_per_s: float) -> float:
    """Return how long nothing must happen before chance explains it in only one case of a thousand."""
    return -math.log(CHANCE) / rate_per_s


def longest_work_s(mean_s: float) -> float:
    """Return what only one time in a thousand exceeds of those of `lab.consumer.lognormal` with this mean."""
    return math.exp(math.log(mean_s) - SIGMA**2 / 2 + NormalDist().inv_cdf(1 - CHANCE) * SIGMA)


def first_pause(times: Iterable[int], since: int, longest_s: float) -> int:
    """Return when nothing had happened for longer than health explains; what was before `since` is health."""
    pause_ms = round(longest_s * 1000)
    after = [since, *sorted(at for at in times if at > since), NEVER]
    return next(a + pause_ms for a, b in pairwise(after) if b - a > pause_ms)


def first_failure(deliveries: Iterable[Delivery], since: int) -> int:
    """Return when a delivery first ended without a settlement, on a queue that has no such delivery in health."""
    return min((d.ended_at for d in deliveries if d.ended_at >= since and d.outcome in FAILED), default=NEVER)


def first_long_work(deliveries: Iterable[Delivery], since: int, longest_s: float) -> int:
    """Return when a message received since then had first been held for longer than health explains."""
    longest_ms = round(longest_s * 1000)
    return min((d.at + longest_ms for d in deliveries if d.at >= since and d.ended_at - d.at > longest_ms), default=NEVER)


def first_long_turn(deliveries: Sequence[Delivery], since: int, longest_s: float) -> int:
    """Return the same for one consumer that processes its messages one after the other, whenever it received them."""
    longest_ms, found, free_at = round(longest_s * 1000), NEVER, 0
    for delivery in sorted(deliveries, key=lambda d: (d.ended_at, d.at)):
        began_at = max(delivery.at, free_at)
        if delivery.ended_at > since and delivery.ended_at - began_at > longest_ms:
            found = min(found, max(began_at + longest_ms, since))
        free_at = delivery.ended_at
    return found


def first_rush(times: Iterable[int], since: int, rate_per_s: float) -> int:
    """Return when more had happened since then than chance explains at this rate: within the first `MOST_OF_RUSH`, if at all."""
    for count, at in enumerate(sorted(at for at in times if at >= since)[:MOST_OF_RUSH], start=1):
        mean = rate_per_s * (at - since) / 1000
        fewer = sum(math.exp(-mean) * mean**n / math.factorial(n) for n in range(count))
        if count > 1 and 1 - fewer < CHANCE:
            return at
    return NEVER


def first_sign_of_failing(deliveries: Sequence[Delivery], since: int, rate_per_s: float, consumers: int, longest_s: float) -> int:
    """Return the first of: a failure, a long hold, a long pause in what is deleted, by all consumers or by one of them."""
    deleted = [d for d in deliveries if d.outcome == "deleted"]
    pauses = [first_pause((d.ended_at for d in deleted), since, longest_pause_s(rate_per_s))]
    for consumer in {d.consumer for d in deliveries}:
        mine = (d.ended_at for d in deleted if d.consumer == consumer)
        pauses.append(first_pause(mine, since, longest_pause_s(rate_per_s / consumers)))
    return min(first_failure(deliveries, since), first_long_work(deliveries, since, longest_s), *pauses)
