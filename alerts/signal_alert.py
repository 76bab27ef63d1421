"""The alert for a signal: it fires while queuewatch's judge reports the signal, and has the judge's severity.

The judge has already waited as long as the signal's rule requires, so `for` is zero: another wait would only delay the page.
`keep_firing_for` bridges a restart of the service, during which the series are absent.
"""

from __future__ import annotations

from alerts.entry import QUEUE_IDENTITY, AlertSpec
from streaming.judge.findings.signals import SignalName

WHY = (
    "The signal is used because its subject (one message, one group, one consumer) cannot be queried in Prometheus: ids are "
    "never labels."
)

BRIDGE = "2m"
"""How far an expression over totals looks back, so that a restart of the service does not look like a recovery."""


def signal_alert(
    signal: SignalName,
    summary: str,
    description: str,
    *,
    matchers: str = "",
    identity: tuple[str, ...] = QUEUE_IDENTITY,
    why: str = WHY,
) -> AlertSpec:
    """Return an alert that fires while `signal` has findings; its value is their number. `matchers` begin with a comma."""
    expr = f'max by (%(by)s) (queuewatch_signals{{signal="{signal}"{matchers}%(match)s}}) > 0'
    return AlertSpec(expr, why, summary, description, identity=identity, judged_severity=True)


def arrivals_alert(
    signal: SignalName, label: str, why: str, summary: str, description: str, *, identity: tuple[str, ...] = QUEUE_IDENTITY
) -> AlertSpec:
    """Return an alert that fires while the signal holds, and again for each further finding: their number is the label `label`.

    Alertmanager notifies when a label changes, never when an annotation changes. A falling number notifies, too, so use this only
    for signals whose findings end together, or are few. There is no keep_firing_for: the alert with the previous number must end
    as soon as the next one begins, so the expression itself bridges a restart.
    """
    expr = f"max by (%(by)s) (last_over_time({_findings(signal)}[{BRIDGE}])) > 0"
    return _counted(expr, label, why, summary, description, identity=identity)


def totals_alert(signal: SignalName, totals: tuple[str, ...], label: str, why: str, summary: str, description: str) -> AlertSpec:
    """Return an alert that fires while the signal holds, and again when the sum of `totals`, its label, grows.

    A queue may have only some of the totals, and one of a folded row has none: the signal alone must still page. The label is
    then `unknown`.
    """
    each = [f"max by (%(on)s) (last_over_time({name}[{BRIDGE}]))" for name in totals]
    none = f"0 * max by (%(on)s) (last_over_time({_findings(signal)}[{BRIDGE}]))"
    total = " or ".join((" + ".join(each), *each, none))
    firing = f"max by (%(by)s) (last_over_time({_findings(signal)}[{BRIDGE}])) > bool 0"
    expr = f"({total}) * on (%(on)s) group_right () ({firing})"
    return _counted(expr, label, why, summary, description, shown="{{ if $value }}%s{{ else }}unknown{{ end }}")


def _findings(signal: SignalName) -> str:
    return f'queuewatch_signals{{signal="{signal}"%(match)s}}'


def _counted(
    expr: str,
    label: str,
    why: str,
    summary: str,
    description: str,
    *,
    shown: str = "%s",
    identity: tuple[str, ...] = QUEUE_IDENTITY,
) -> AlertSpec:
    return AlertSpec(
        expr,
        why,
        summary,
        description,
        identity=identity,
        keep_firing_s=0.0,
        labels={label: shown.replace("%s", '{{ printf "%.0f" $value }}')},
        judged_severity=True,
    )
