"""Burrow's rules for a consumer group on one partition, with its defaults.

https://github.com/linkedin/Burrow/blob/master/core/internal/evaluator/caching.go (rules 1 to 5). Its defaults: 10 offsets are
kept, the allowed lag is 0, broker offsets are read every 10 s, groups are evaluated every 60 s, notifiers send from WARN on.

A queue is treated as a partition: its offset is the number of messages that have left it, its lag the number in it. A consumer
commits every 30 s while it receives or settles anything, like a Kafka client that commits while it polls.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from lab.detect.alarms import Alarm, alarms_of
from lab.detect.run import Run

Status = Literal["OK", "WARN", "STOP", "STALL", "REWIND"]

COMMIT_S = 30.0
BROKER_OFFSETS_S = 10.0
EVALUATION_S = 60.0
INTERVALS = 10
WORK = ("received", "deleted", "released", "extended")


class Commit(NamedTuple):
    """An offset that a consumer committed, and the lag then; None where unknown."""

    offset: int
    at_ms: int
    lag: int | None


def status(commits: Sequence[Commit], broker: Sequence[int], lag: int, now_s: int, allowed_lag: int = 0) -> Status:
    """Apply `calculatePartitionStatus`: stop, then rewind, then stall and slow where the lag was never zero."""
    if lag <= allowed_lag or not commits:
        return "OK"
    if stopped(commits, now_s) and not recently_zero(commits, broker):
        return "STOP"
    back = rewound(commits)
    if back > 0 and all(c.offset < commits[back - 1].offset for c in commits[back:]):
        return "REWIND"
    if always_behind(commits, allowed_lag):
        if stalled(commits):
            return "STALL"
        if not_catching_up(commits):
            return "WARN"
    return "OK"


def always_behind(commits: Sequence[Commit], allowed_lag: int) -> bool:
    """Rule 1: a window with a lag of zero somewhere is healthy."""
    return all(c.lag is None or c.lag > allowed_lag for c in commits)


def rewound(commits: Sequence[Commit]) -> int:
    """Rule 2: the first offset that is lower than the one before; -1 if there is none."""
    return next((i for i, (a, b) in enumerate(pairwise(commits), start=1) if b.offset < a.offset), -1)


def stopped(commits: Sequence[Commit], now_s: int) -> bool:
    """Rule 3: the last commit is older than the duration of the whole window."""
    return now_s * 1000 - commits[-1].at_ms > commits[-1].at_ms - commits[0].at_ms


def stalled(commits: Sequence[Commit]) -> bool:
    """Rule 4: the same offset is committed again and again."""
    return len({c.offset for c in commits}) == 1


def not_catching_up(commits: Sequence[Commit]) -> bool:
    """Rule 5: offsets advance and the lag never falls within the window."""
    lags = [c.lag for c in commits if c.lag is not None]
    return all(b >= a for a, b in pairwise(lags))


def recently_zero(commits: Sequence[Commit], broker: Sequence[int]) -> bool:
    """Whether the last commit is at one of the broker's recent offsets."""
    return any(end <= commits[-1].offset for end in broker)


@dataclass(frozen=True)
class Burrow:
    """Burrow's rules with each queue as one partition."""

    name: str = "Burrow's rules"
    source: str = "linkedin/Burrow core/internal/evaluator/caching.go"

    def applies(self, run: Run) -> bool:
        """It applies to any queue, with the mapping above."""
        return bool(run.recording.settings)

    def alarms(self, run: Run) -> list[Alarm]:
        history = run.recording.history.of(run.main)
        entered = sorted(at for _, at, _ in history.arrivals)
        left = sorted(e.at for e in history.departures)
        work = sorted(r.event["at"] for r in run.recording.reports if _is_work(r.event, run.main))
        commits: deque[Commit] = deque(maxlen=INTERVALS)
        broker: deque[int] = deque(maxlen=INTERVALS)
        firing: list[bool] = []
        times = run.every(EVALUATION_S)
        for at in run.every(BROKER_OFFSETS_S):
            end, offset = bisect_right(entered, at), bisect_right(left, at)
            broker.append(end)
            since = at - round(COMMIT_S * 1000)
            if (at - times[0]) % round(COMMIT_S * 1000) == 0 and bisect_right(work, at) > bisect_left(work, since):
                commits.append(Commit(offset, at, end - offset))
            if (at - times[0]) % round(EVALUATION_S * 1000) == 0:
                firing.append(status(list(commits), list(broker), end - offset, at // 1000) != "OK")
        return alarms_of(run.main, "status", times, firing)


def _is_work(event: dict[str, object], queue: str) -> bool:
    return event["queue"] == queue and event["type"] in WORK
