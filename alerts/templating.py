"""Pieces of Prometheus alert templates: this alert's own value, and companion series of the same queue.

A label that is missing gives an empty string and a companion series that is missing gives `unknown`: a template never
fails and never shows a number that is not there.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote

Shown = Literal["count", "duration", "percent", "number"]

_FORMATS: dict[Shown, str] = {
    "count": 'printf "%.0f"',
    "duration": "humanizeDuration",
    "percent": "humanizePercentage",
    "number": "humanize",
}

QUEUE = "{{ $labels.system }} queue {{ $labels.queue }}{{ with $labels.scope_id }} ({{ . }}){{ end }}"
"""The queue in words, with its scope when it has one."""


def own_value(shown: Shown) -> str:
    """The alert expression's value."""
    return _braced(f"$value | {_FORMATS[shown]}")


def companion(metric: str, shown: Shown, *, matchers: str = "", function: str = "max") -> str:
    """Another series of the alert's own queue, for example its highest receive count.

    `matchers` are further PromQL matchers without braces; several series are put together by `function`.
    """
    extra = f",{matchers}".replace('"', r"\"") if matchers else ""
    selector = f"{function}({metric}{{job=%q,system=%q,scope_id=%q,queue=%q{extra}}})"
    asked = f'with printf "{selector}" $labels.job $labels.system $labels.scope_id $labels.queue | query'
    answer = _braced(f". | first | value | {_FORMATS[shown]}")
    return f"{_braced(asked)}{answer}{_braced('else')}unknown{_braced('end')}"


def _braced(action: str) -> str:
    return "{{ " + action + " }}"


def dashboard_path(uid: str, variables: tuple[str, ...]) -> str:
    """The path of a dashboard with its variables set from the alert's labels, escaped for a URL."""
    query = "&".join(f"var-{quote(name)}={{{{ $labels.{name} | urlquery }}}}" for name in variables)
    return f"/d/{uid}?{query}" if query else f"/d/{uid}"


def messages_in(state: str) -> str:
    """How many messages of the queue are `visible`, `in_flight` or `delayed`."""
    return companion("queuewatch_queue_messages", "count", matchers=f'state="{state}"')


def groups_in(state: str) -> str:
    """How many groups of the queue are in `backlog`, `in_flight`, `blocked` or `hidden`."""
    return companion("queuewatch_groups", "count", matchers=f'state="{state}"')


def oldest(scope: str) -> str:
    """The age of the queue's oldest message in a scope: `all`, `visible`, `cloudwatch`, `healthy`."""
    return companion("queuewatch_oldest_message_age_seconds", "duration", matchers=f'scope="{scope}"')
