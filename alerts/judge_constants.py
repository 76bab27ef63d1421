"""Constants of the judge that rule texts name, so that the texts say what the code does."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from alerts.units import number, spoken
from streaming.judge.broker_counts import OVERDUE_RATIO
from streaming.judge.findings.measures import COUNT_AGE_MS
from streaming.judge.folding.causes import HELD_LONGER_RATIO
from streaming.judge.knowledge.pauses import MOST_WORK_RATIO
from streaming.judge.rules.failing import QUICK_APART_MS, QUICK_SLICE_MS
from streaming.judge.rules.groups import FRONT_OPEN_MS
from streaming.judge.rules.redrive import PROGRESS_KNOWN_MS
from streaming.judge.rules.stalled import FEWEST_FAILING, PAUSE_MARGIN

JUDGE_CONSTANTS: Mapping[str, str] = MappingProxyType(
    {
        "count_age": spoken(COUNT_AGE_MS / 1000, "seconds"),
        "fewest_failing": number(FEWEST_FAILING),
        "front_open": spoken(FRONT_OPEN_MS / 1000, "seconds"),
        "held_longer_factor": number(HELD_LONGER_RATIO),
        "most_work": spoken(MOST_WORK_RATIO, "ratio"),
        "overdue_factor": number(OVERDUE_RATIO),
        "pause_factor": number(PAUSE_MARGIN),
        "progress_known": spoken(PROGRESS_KNOWN_MS / 1000, "seconds"),
        "quick_slice": f"{QUICK_SLICE_MS // 1000} s",
        "quick_time": f"{(2 * QUICK_SLICE_MS + QUICK_APART_MS) // 1000} s",
    }
)
"""Each with its unit. A rule's text names them in braces, as it does thresholds."""
