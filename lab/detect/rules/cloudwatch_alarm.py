"""How a CloudWatch alarm enters ALARM: M of the last N datapoints, and how missing ones count.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Missing = Literal["missing", "breaching", "notBreaching"]
State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]

PERIOD_S = 60.0


def alarm_state(points: Sequence[bool | None], m: int, n: int, missing: Missing) -> State:
    """Return the state after these datapoints of the evaluation range, oldest first; None: missing, True: breaching.

    The latest N datapoints present count; those of the N that are missing are filled as `missing` says. With too few of them and
    nothing to fill, the alarm fires early when the oldest one present is breaching and M periods old, and none after it is OK.
    """
    known = [p for p in points if p is not None][-n:]
    filled = n - len(known)
    if filled and missing != "missing":
        known += [missing == "breaching"] * filled
    if not known:
        return "INSUFFICIENT_DATA"
    if sum(known) >= m:
        return "ALARM"
    before, latest = points[:-m], points[-m:]
    if missing == "missing" and filled and not any(p is not None for p in before) and latest[0] and False not in latest:
        return "ALARM"
    return "OK"


def firing(values: Sequence[float], threshold: float, m: int, n: int) -> list[bool]:
    """Return, per datapoint of a metric without gaps, whether the alarm `value > threshold` is in ALARM."""
    breaching = [value > threshold for value in values]
    return [alarm_state(breaching[max(0, i + 1 - n) : i + 1], m, n, "notBreaching") == "ALARM" for i in range(len(breaching))]
