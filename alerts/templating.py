"""Pieces of Prometheus alert templates: this alert's own value, and companion series of the same queue.

A missing label gives an empty string, and a missing companion series gives `unknown`: a template never fails and never shows a
wrong number.

The texts are %-formatted, as expressions are. `%(kept_matchers)s` and `%(kept_values)s` in a query are for the additional labels
that distinguish alerts. Other percent signs are doubled.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote

Shown = Literal["count", "duration", "percent", "number", "factor"]

_FORMATS: dict[Shown, str] = {
    "count": 'printf "%%.0f"',
    "duration": "humanizeDuration",
    "percent": "humanizePercentage",
    "number": "humanize",
    "factor": 'printf "%%.1f"',  # humanize prints 1000m for a value that rounding left just below 1
}

QUEUE = "{{ $labels.system }} queue {{ $labels.queue }}{{ with $labels.scope_id }} ({{ . }}){{ end }}"
"""The queue in words, with its scope if it has one."""


def own_value(shown: Shown) -> str:
    """Return the template for the value of the alert expression."""
    return _braced(f"$value | {_FORMATS[shown]}")


def companion(metric: str, shown: Shown, *, matchers: str = "", function: str = "max") -> str:
    """Return the template for another series of the alert's queue, for example its highest receive count.

    `matchers` are additional PromQL matchers without braces; `function` aggregates several series.
    """
    answer = _braced(f". | first | value | {_FORMATS[shown]}")
    return f"{_asked(metric, matchers, function)}{answer}{_braced('else')}unknown{_braced('end')}"


def _asked(metric: str, matchers: str, function: str, condition: str = "") -> str:
    """Return the beginning of a template whose rest is for the result of a query, if it has one."""
    extra = f",{matchers}".replace('"', r"\"") if matchers else ""
    selector = f"{function}({metric}{{job=%%q,system=%%q,scope_id=%%q,queue=%%q%(kept_matchers)s{extra}}}){condition}"
    values = "$labels.job $labels.system $labels.scope_id $labels.queue%(kept_values)s"
    return _braced(f'with printf "{selector}" {values} | query')


def kept(keep_labels: tuple[str, ...]) -> dict[str, str]:
    """Return what completes the queries of a text, so that they ask only for series with the alert's own `keep_labels`."""
    return {
        "kept_matchers": "".join(f",{label}=%q" for label in keep_labels),
        "kept_values": "".join(f" $labels.{label}" for label in keep_labels),
    }


def _braced(action: str) -> str:
    return "{{ " + action + " }}"


def dashboard_path(uid: str, variables: tuple[str, ...]) -> str:
    """Return the path of a dashboard with its variables set from the alert's labels, escaped for a URL."""
    query = "&".join(f"var-{quote(name)}={{{{ $labels.{name} | urlquery }}}}" for name in variables)
    return f"/d/{uid}?{query}" if query else f"/d/{uid}"


def messages_in(state: str) -> str:
    """Return the template for the number of `visible`, `in_flight` or `delayed` messages of the queue."""
    return companion("queuewatch_queue_messages", "count", matchers=f'state="{state}"')


def groups_in(state: str) -> str:
    """Return the template for the number of groups in `backlog`, `in_flight`, `blocked` or `hidden`."""
    return companion("queuewatch_groups", "count", matchers=f'state="{state}"')


def oldest(scope: str) -> str:
    """Return the template for the age of the oldest message in a scope: `all`, `visible`, `cloudwatch`, `healthy`."""
    return at_least(scope) + companion("queuewatch_oldest_message_age_seconds", "duration", matchers=f'scope="{scope}"')


def at_least(scope: str) -> str:
    """Return the template that says so if the age of the oldest message in a scope is a lower bound."""
    asked = _asked("queuewatch_oldest_message_age_exact", f'scope="{scope}"', "max", " == 0")
    return f"{asked}at least {_braced('end')}"
