"""A queue's health without thresholds, after Burrow's idea: evaluate a window of samples instead of a limit.

The rules are tried in order and the first that applies gives the status. Telemetry comes first, as nothing else is known
without it. A queue that was empty a moment ago is never called slow, which avoids the usual false alarms of this kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from streaming.core.columns import nonzero
from streaming.core.state.queues import NEVER, Depth
from streaming.judge.broker_counts import COUNT_LAG_MS, overdue_from
from streaming.judge.conditions.conditions import once
from streaming.judge.context import Context
from streaming.judge.history.history import History
from streaming.judge.history.window import Bools, Ints, Window
from streaming.judge.rules.failing import is_failing
from streaming.judge.rules.prefetched import stuck_windows_since
from streaming.judge.rules.stalled import FEWEST_FAILING, is_long_stalled, is_usual_work, stalled_since
from streaming.judge.snapshot import QueueStatus

WINDOW_MS = 300_000
IDLE_MS = WINDOW_MS // 2 + COUNT_LAG_MS
"""A counted backlog is stopped after so long without a sign of a consumer. One that follows from sends is 90 s old at first."""
GROWTH_RATIO = 1.1
"""A backlog that is only counted must have grown by more than the error of the counts."""
RECOVERED_RATIO = 0.95
"""A lagging queue lags until its backlog is smaller than five minutes ago by more than chance."""


def queue_status(c: Context) -> QueueStatus:
    """Return `stale`, `unknown`, `failing`, `ok`, `stopped`, `stalled` or `lagging`, by the first rule that applies."""
    if c.now >= stale_from(c):
        return "stale"
    if c.basis == "unknown":
        return "unknown"
    if is_failing(c):
        return "failing"
    return _work_status(c)


def is_lagging(c: Context) -> bool:
    """Whether consumers work but do not keep up."""
    return _work_status(c) == "lagging"


@once
def _work_status(c: Context) -> QueueStatus:
    found = _counts_status(c) if c.judged_by_counts else _messages_status(c)
    if found != "ok" and c.judged_by_counts and c.basis == "messages":
        # What seems to wait may be in flight. If even then the messages show that consumers keep up, they do.
        found = "ok" if _messages_status(c) == "ok" else found
    return "lagging" if found == "ok" and "lagging" in c.memory.since and not _recovers(c) else found


def _recovers(c: Context) -> bool:
    """Whether a lagging queue has recovered: nothing waited at some point of the window, or its backlog shrank.

    An old message that is received at last, or a backlog that only stopped growing, is not a recovery.
    """
    if c.is_dead_letter_queue or c.paused or (not c.judged_by_counts and _suspects_wait_alone(c)):
        return True
    if not c.judged_by_counts:
        window = _window(c)
        waited, backlogs = window["oldest_visible_at"] > 0, window["unsettled"].tolist()
    else:
        counts = [depth for depth in c.summary.depths if depth.at >= c.now - WINDOW_MS]
        waited, backlogs = np.array([depth.visible for depth in counts]) > 0, [depth.unsettled for depth in counts]
    return not backlogs or not waited.all() or backlogs[-1] < RECOVERED_RATIO * backlogs[0]


def _messages_status(c: Context) -> QueueStatus:
    if c.is_dead_letter_queue or c.paused:
        return "ok"
    if (stuck := stuck_windows_since(c)) is not None and is_long_stalled(c, max(stuck, c.summary.last_settled_at)):
        return "stalled"
    if not c.summary.numbers["visible"]:
        # With nothing waiting now, the consumers have caught up, unless they only hold again what they failed before.
        since = stalled_since(c)
        return "stalled" if since is not None and is_long_stalled(c, since) else "ok"
    if c.flow_status is None:
        window = _window(c)
        read = c.history.read_until(window.at)
        c.flow_status = FLOW_STATUSES[int(_flow_codes(window.at, read, window.column)[0])] if len(window) else "ok"
    if c.flow_status in ("ok", "lagging") and (since := stalled_since(c)) is not None and is_long_stalled(c, since):
        # Messages that expired or were reconciled away count as settled in the flow: they are no work.
        return _stopped_or_stalled(c, since)
    if c.flow_status == "lagging" and _suspects_wait_alone(c):
        return "ok"
    return "ok" if c.flow_status in ("stopped", "stalled") and is_usual_work(c) else c.flow_status


def _suspects_wait_alone(c: Context) -> bool:
    """Whether all that waits are one or two poison suspects: consumers keep up with the other messages, whatever their age."""
    return c.summary.numbers["visible"] <= c.summary.numbers["poison"] < FEWEST_FAILING


def recent_flows(history: History, queues: Ints, now: int) -> list[QueueStatus | None]:
    """Return the status by the flow of the last minutes; None for queues that were not sampled throughout.

    `queues`: indices of the names last added to the history.
    """
    at, values = history.stretch(now - WINDOW_MS, queues)
    if len(at) < 2:
        return [None] * len(queues)
    known = values("present", [0])[0] > 0
    codes = _flow_codes(at, history.read_until(at), values)
    return [FLOW_STATUSES[code] if is_known else None for code, is_known in zip(codes.tolist(), known.tolist(), strict=True)]


def flows_not_ok(history: History, queues: Ints, now: int) -> Bools:
    """Return which queues' status by `recent_flows` is not ok."""
    at, values = history.stretch(now - WINDOW_MS, queues)
    if len(at) < 2:
        return np.ones(len(queues), dtype=bool)
    not_ok: Bools = (values("present", [0])[0] == 0) | _may_be_slow(at, history.read_until(at), values)
    # Most are well by a few of the samples: all of them are read only for the others.
    slow = nonzero(not_ok)
    if not len(slow):
        return not_ok
    at, values = history.stretch(now - WINDOW_MS, queues[slow])
    not_ok[slow] = (values("present", [0])[0] == 0) | (_flow_codes(at, history.read_until(at), values) > 0)
    return not_ok


def _counts_status(c: Context) -> QueueStatus:
    """Return the same from the broker's counts, where messages cannot show it."""
    counts = [depth for depth in c.summary.depths if depth.at >= c.now - WINDOW_MS]
    if c.summary.messages_seen and "visible" not in c.summary.attributes:
        found = _messages_status(c)
        return "unknown" if found == "ok" and _is_quiet(c) else found
    since = stalled_since(c)
    if since is not None and is_long_stalled(c, since):
        return _stopped_or_stalled(c, since)
    if not counts:
        works = max(c.summary.last_received_at, c.summary.last_settled_at) >= c.now - WINDOW_MS
        return "ok" if works or (_awaits_count(c) and not _may_stand(c)) else "unknown"
    if c.is_dead_letter_queue or c.paused or any(depth.visible == 0 for depth in counts):
        return "ok"
    if counts[-1].at - counts[0].at < WINDOW_MS // 2:
        return "ok"
    active = max(c.summary.last_received_at, c.summary.last_settled_at, c.memory.evidence.life_at)
    if c.memory.evidence.frozen_since and c.now - active >= IDLE_MS:
        return "stopped"
    return "lagging" if _grows(counts) else "ok"


def _stopped_or_stalled(c: Context, since: int) -> QueueStatus:
    """Return whether consumers still receive from a queue that finishes nothing: a receive of long ago does not show it."""
    return "stalled" if c.summary.last_received_at >= max(since, c.now - WINDOW_MS) else "stopped"


def _awaits_count(c: Context) -> bool:
    """Whether the latest count still tells how the queue is, although it is older than the window: the next is not overdue."""
    overdue = overdue_from(c.summary)
    return bool(c.broker_counts) if overdue is None else c.now <= overdue


def _may_stand(c: Context) -> bool:
    """Whether only a backlog is counted (Cloudflare), and nothing has shown for the whole window that consumers take from it."""
    if c.basis not in ("counts", "producers", "partial") or c.is_dead_letter_queue or c.paused:
        return False
    e = c.memory.evidence
    return e.backlog_since > 0 and c.now - e.backlog_since >= WINDOW_MS


def _is_quiet(c: Context) -> bool:
    """Whether nothing was received or settled for the whole window: without counts and sends, messages may wait unseen."""
    if c.is_dead_letter_queue or c.paused:
        return False
    return c.now - max(c.summary.last_received_at, c.summary.last_settled_at) > WINDOW_MS


def _window(c: Context) -> Window:
    """Return the samples of the last five minutes; where the queue is judged less often than that, the latest two."""
    inside = c.recent.since(c.now - WINDOW_MS)
    return inside if len(inside) > 1 else Window(c.recent.at[-2:], c.recent.values[-2:])


def stale_from(c: Context) -> int:
    """Return from when on the queue is stale if nothing more is reported on it (epoch milliseconds); NEVER if it was not counted.

    1. "If the collector that counts this queue has gone silent, nothing is known." Settings reported once are not counts. Where
    polls are further apart than the limit, the next count must be overdue.
    """
    counted = c.summary.attributes.get("visible")
    if counted is None:
        return NEVER
    silent_from = max(counted.at, c.summary.last_event_at) + int(c.thresholds.telemetry_stale_s * 1000)
    return max(silent_from, overdue_from(c.summary) or 0)


FLOW_STATUSES: tuple[QueueStatus, ...] = ("ok", "stopped", "stalled", "lagging")


Values = Callable[[str, Sequence[int]], Ints]
"""Reads a field of some samples: see `History.stretch`."""


def _flow_codes(at: Ints, read: Ints, values: Values) -> Ints:
    """Return the index of each queue's status in FLOW_STATUSES, by its messages.

    `at`: the times of one or more samples; `read`: until when events had been read then; `values`: see `History.stretch`.
    """
    every = range(len(at))
    # 2. "If nothing was waiting at some point of the window, the consumers keep up."
    caught_up = (values("oldest_visible_at", every) == 0).any(axis=0)
    if at[-1] - at[0] < WINDOW_MS // 2:
        caught_up[:] = True
    # 3. "If nothing was received or settled, they stopped." 4. "If nothing was settled, they are stalled."
    settled, received = (_grew(total, at, values) for total in ("settled", "received"))
    behind = _is_behind(read, values)
    codes: Ints = np.where(caught_up, 0, np.where(~settled & ~received, 1, np.where(~settled, 2, np.where(behind, 3, 0)))).astype(
        np.int64
    )
    return codes


def _may_be_slow(at: Ints, read: Ints, values: Values) -> Bools:
    """Return which queues are not ok by their messages unless they caught up in between: see `_flow_codes`."""
    slow: Bools = ~_grew("settled", at, values) | _is_behind(read, values)
    return slow


def _grew(total: str, at: Ints, values: Values) -> Bools:
    first, last = values(total, (0, len(at) - 1))
    grew: Bools = last > first
    return grew


def _is_behind(read: Ints, values: Values) -> Bools:
    # 5. "If the oldest waiting message grew older in every part of the window and the backlog did not shrink, consumers work
    # but do not keep up." Its age is that of when events had been read: read late, messages seem to wait that were deleted.
    parts = sorted({i * (len(read) - 1) // 4 for i in range(5)})
    ages = read[parts, None] - values("oldest_visible_at", parts)
    first, last = values("unsettled", (0, len(read) - 1))
    behind: Bools = (np.diff(ages, axis=0) > 0).all(axis=0) & (last >= first)
    return behind


def _grows(counts: list[Depth]) -> bool:
    """5, by counts: the backlog grew by more than the error of counts in every part of the window: consumers do not keep up."""
    last = len(counts) - 1
    parts = [counts[i].unsettled for i in sorted({i * last // 4 for i in range(5)})]
    return all(later >= earlier for earlier, later in pairwise(parts)) and parts[-1] > GROWTH_RATIO * parts[0] + 2
