"""The alert of a signal: it fires while queuewatch's own judge says so, and it carries the judge's severity.

The judge has already waited as long as the signal's rule asks, so `for` is zero: another wait here would only make the
page later. `keep_firing_for` bridges a restart of the service, during which the series are absent.
"""

from __future__ import annotations

from alerts.entry import AlertSpec
from streaming.judge.signals import SignalName

WHY = (
    "The signal, because what it is about (one message, one group, one consumer) cannot be asked of "
    "Prometheus: ids are "
    "never labels. Findings of severity info are shown and logged, never alerted on."
)

BRIDGE = "2m"
"""How long an expression over totals looks back, so that a restart of the service does not look like a recovery."""


def signal_alert(signal: SignalName, summary: str, description: str) -> AlertSpec:
    """Fires while at least one finding of `signal` holds for a queue; the value is how many do."""
    expr = f'max by (%(by)s) (queuewatch_signals{{signal="{signal}",severity!="info"%(match)s}}) > 0'
    return AlertSpec(expr, WHY, summary, description, judged_severity=True)


def counted_signal_alert(
    signal: SignalName, counted_by: str, counter: str, label: str, why: str, summary: str, description: str
) -> AlertSpec:
    """Fires while the signal holds, and again for each new count: `label` carries the total, so it is a new alert.

    Alertmanager notifies about a changed label and never about a changed annotation. The value is the total `counter`,
    PromQL with one series per `counted_by` (comma-separated labels). No keep_firing_for: the alert of the count before
    must end at once when the next one begins, so the expression itself bridges a restart.
    """
    selector = f'queuewatch_signals{{signal="{signal}",severity!="info"%(match)s}}[{BRIDGE}]'
    firing = f"max by (%(by)s) (max_over_time({selector})) > bool 0"
    return AlertSpec(
        f"({counter}) * on ({counted_by}) group_right () ({firing})",
        why,
        summary,
        description,
        keep_firing_s=0.0,
        labels={label: '{{ printf "%.0f" $value }}'},
        judged_severity=True,
    )
