"""PromQL of the panels: always with the dashboard's variables, and aggregated over replicas of the service."""

from __future__ import annotations

from alerts.catalogue import BY_NAME
from alerts.dashboards.spec import Context, Line, Query
from alerts.entry import AlertName

INSTANCE = ', instance=~"$instance"'
JOB = f'job=~"$job"{INSTANCE}'
QUEUE = f'{JOB}, system=~"$system", scope_id=~"$scope_id", queue=~"$queue"'
BY_QUEUE = "system, scope_id, queue"
NAME = "{{system}} {{scope_id}} {{queue}}"
"""The legend of a series of one queue."""


def where(label: str, value: str) -> str:
    """Return one matcher."""
    return f'{label}="{value}"'


def of_queue(metric: str, matchers: str = "") -> str:
    """Return a selector for the selected queues."""
    return f"{metric}{{{QUEUE}{', ' + matchers if matchers else ''}}}"


def of_job(metric: str, matchers: str = "") -> str:
    """Return a selector for the selected jobs."""
    return f"{metric}{{{JOB}{', ' + matchers if matchers else ''}}}"


def per_queue(metric: str, matchers: str = "", also: str = "") -> str:
    """Return one value per queue, and per labels in `also`, aggregated over instances."""
    by = f"{BY_QUEUE}, {also}" if also else BY_QUEUE
    return f"max by ({by}) ({of_queue(metric, matchers)})"


def rate_per_queue(metric: str, also: str = "") -> str:
    """Per second, of a counter of a queue, and per further labels `also`."""
    by = f"{BY_QUEUE}, {also}" if also else BY_QUEUE
    return f"max by ({by}) (rate({of_queue(metric)}[$__rate_interval]))"


def recorded_per_queue(record: str, also: str) -> str:
    """One value per queue, and per further labels `also`, of a recording rule: those are of no instance."""
    return f"max by ({BY_QUEUE}, {also}) ({record}{{{QUEUE.replace(INSTANCE, '')}}})"


def largest(expr: str, n: int = 10) -> str:
    """Return the n largest series."""
    return f"topk({n}, {expr})"


def limit_of(alert: AlertName, context: Context) -> float:
    """Return the configured limit of a raw-metric alert."""
    spec = BY_NAME[alert].alert
    assert spec.limit is not None, f"{alert} has no limit"
    switch = context.config.switch(BY_NAME[alert])
    return spec.limit.default if switch.limit is None else switch.limit


def limit_line(alert: AlertName, context: Context, *, below: bool = False) -> Line:
    """Return the threshold line of a raw-metric alert."""
    return Line(alert, limit_of(alert, context), below)


def signals(*names: AlertName) -> Query:
    """Return the firing findings by signal and queue, which the alerts compare with zero."""
    choice = "|".join(names)
    expr = per_queue("queuewatch_signals", f'signal=~"{choice}"', "signal, severity")
    return Query(expr, f"{{{{signal}}}} {{{{severity}}}} {NAME}")


def signal_lines(*names: AlertName) -> tuple[Line, ...]:
    """Return the threshold lines of signals, which fire from the first finding on."""
    return tuple(Line(name, 1.0) for name in names)


def status_states() -> dict[str, tuple[str, str]]:
    """Numbers of the statuses on a timeline, worst highest."""
    return {
        "0": ("ok", "green"),
        "1": ("lagging", "yellow"),
        "2": ("failing", "red"),
        "3": ("stalled", "red"),
        "4": ("stopped", "dark-red"),
        "5": ("stale", "purple"),
        "6": ("unknown", "text"),
    }


def status_number() -> str:
    """Return one number per queue for `status_states`, from its status series."""

    def when(number: str, word: str) -> str:
        return f"({number} * (max by ({BY_QUEUE}) ({of_queue('queuewatch_queue_status', where('status', word))}) == 1))"

    return " or ".join(when(number, word) for number, (word, _) in status_states().items())
