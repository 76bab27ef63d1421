"""Parses PromQL as far as the tests need: series with their matchers, and the labels that are grouped by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from streaming.judge.metrics import METRIC_BY_NAME, METRICS, QUEUE_LABELS, SINK_METRICS

TARGET_LABELS = frozenset({"job", "instance"})
"""Labels that Prometheus adds to every scraped series."""

FOREIGN: dict[str, frozenset[str]] = {
    "up": TARGET_LABELS,
    "ALERTS": frozenset({"alertname", "alertstate"}) | TARGET_LABELS,
}
"""Prometheus' own series that may be queried, with their labels."""

_WORDS = frozenset(
    re.findall(
        r"\w+",
        "by without on ignoring group_left group_right bool and or unless offset sum min max avg count "
        "topk bottomk rate increase deriv absent time vector clamp_min last_over_time max_over_time "
        "sort_desc label_values label_replace histogram_quantile",
    )
)
_STRING = r'"(?:[^"\\]|\\.)*"'
_SELECTOR = re.compile(rf"(?P<name>[a-zA-Z_:][\w:]*)(?P<matchers>\{{(?:[^{{}}\"]|{_STRING})*\}})?(?P<range>\[[^\]]+\])?")
_MATCHER = re.compile(rf"(?P<label>\w+)\s*(?P<op>=~|!~|!=|=)\s*(?P<value>{_STRING})")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")


@dataclass(frozen=True)
class Selector:
    """One selector of an expression. `matchers`: label -> (operator, value)."""

    name: str
    matchers: dict[str, tuple[str, str]]
    range: str | None
    function: str | None
    """The function applied directly to it."""


def selectors(expr: str) -> Iterator[Selector]:
    """Yield every series selector in `expr`."""
    bare = _GROUPING.sub(lambda m: m.group(0).split("(")[0] + " " * 2, expr)
    for found in _SELECTOR.finditer(re.sub(_STRING, lambda m: m.group(0), bare)):
        if _inside_string(bare, found.start()) or found["name"] in _WORDS or _is_duration(bare, found.start()):
            continue
        matchers = {m["label"]: (m["op"], m["value"][1:-1]) for m in _MATCHER.finditer(found["matchers"] or "")}
        called = re.search(r"(\w+)\s*\(\s*$", bare[: found.start()])
        yield Selector(found["name"], matchers, found["range"], called[1] if called else None)


def grouping_labels(expr: str) -> set[str]:
    """Return every label named in `by`, `on` and similar clauses."""
    return {label.strip() for inside in _GROUPING.findall(expr) for label in inside.split(",") if label.strip()}


def labels_of(name: str, recorded: frozenset[str] = frozenset()) -> frozenset[str] | None:
    """Return the labels that a series may have, or None for an unknown series. `recorded` are our recording rules."""
    if name in FOREIGN:
        return FOREIGN[name]
    if name in recorded:
        return TARGET_LABELS | {"objective", *QUEUE_LABELS} if name.startswith("queue:") else TARGET_LABELS
    for metric in (*METRICS, *SINK_METRICS):
        names: set[str] = {metric.name}
        if metric.kind == "histogram":
            names = {f"{metric.name}{suffix}" for suffix in ("_bucket", "_count", "_sum")}
        if name in names:
            own = METRIC_BY_NAME[metric.name].labels
            return frozenset(own) | TARGET_LABELS | (frozenset(QUEUE_LABELS) if metric.per_queue else frozenset())
    return None


def unknown_names(expr: str, recorded: frozenset[str] = frozenset()) -> list[str]:
    """List the series and labels in `expr` that the metrics catalogue does not have."""
    wrong = []
    known: set[str] = set()
    for selector in selectors(expr):
        labels = labels_of(selector.name, recorded)
        if labels is None:
            wrong.append(f"no series {selector.name}")
            continue
        known |= labels
        wrong += [f"{selector.name} has no label {label}" for label in selector.matchers if label not in labels]
    return wrong + [f"none of the series has label {label}" for label in sorted(grouping_labels(expr) - known)]


def template_queries(template: str) -> list[str]:
    """Return the PromQL in an annotation's template, with `%q` replaced by a quoted word."""
    found = re.findall(r'printf\s+"((?:[^"\\]|\\.)*)"', template)
    queries = [text.replace(r"\"", '"').replace("%q", '"x"') for text in found]
    return [query for query in queries if "%" not in query]


def template_labels(template: str) -> set[str]:
    """Return the alert labels that an annotation uses."""
    return set(re.findall(r"\$labels\.(\w+)", template))


def _inside_string(text: str, position: int) -> bool:
    return any(m.start() < position < m.end() for m in re.finditer(_STRING, text))


def _is_duration(text: str, position: int) -> bool:
    """Return whether the match is part of a number or range (`m` in `5m`, `e` in `1e5`), not a series."""
    before = text[:position]
    return bool(before) and (before[-1].isdigit() or before.rfind("[") > before.rfind("]"))
