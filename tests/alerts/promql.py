"""Takes PromQL apart as far as the tests need: which series with which matchers, and which labels are grouped by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from streaming.judge.metrics import METRIC_BY_NAME, METRICS, QUEUE_LABELS, SINK_METRICS

TARGET_LABELS = frozenset({"job", "instance"})
"""What Prometheus adds to every series it scrapes."""

FOREIGN: dict[str, frozenset[str]] = {
    "up": TARGET_LABELS,
    "ALERTS": frozenset({"alertname", "alertstate"}) | TARGET_LABELS,
}
"""Series of Prometheus' own that may be asked for, with their labels."""

_WORDS = frozenset(
    re.findall(
        r"\w+",
        "by without on ignoring group_left group_right bool and or unless offset sum min max avg count "
        "topk bottomk rate increase deriv absent time vector clamp_min last_over_time max_over_time "
        "sort_desc label_values histogram_quantile",
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
    """The function called on it directly."""


def selectors(expr: str) -> Iterator[Selector]:
    """Every selector of series in `expr`."""
    bare = _GROUPING.sub(lambda m: m.group(0).split("(")[0] + " " * 2, expr)
    for found in _SELECTOR.finditer(re.sub(_STRING, lambda m: m.group(0), bare)):
        if _inside_string(bare, found.start()) or found["name"] in _WORDS or _is_duration(bare, found.start()):
            continue
        matchers = {m["label"]: (m["op"], m["value"][1:-1]) for m in _MATCHER.finditer(found["matchers"] or "")}
        called = re.search(r"(\w+)\s*\(\s*$", bare[: found.start()])
        yield Selector(found["name"], matchers, found["range"], called[1] if called else None)


def grouping_labels(expr: str) -> set[str]:
    """Every label named in by, on and their like."""
    return {label.strip() for inside in _GROUPING.findall(expr) for label in inside.split(",") if label.strip()}


def labels_of(name: str, recorded: frozenset[str] = frozenset()) -> frozenset[str] | None:
    """The labels a series may carry, None when there is no such series. `recorded` are recording rules of ours."""
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
    """What is wrong with the names in `expr`: series and labels the catalogue of metrics does not have."""
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
    """The PromQL in an annotation's template, with its `%q` filled by a quoted word."""
    found = re.findall(r'printf\s+"((?:[^"\\]|\\.)*)"', template)
    queries = [text.replace(r"\"", '"').replace("%q", '"x"') for text in found]
    return [query for query in queries if "%" not in query]


def template_labels(template: str) -> set[str]:
    """The labels of the alert an annotation names."""
    return set(re.findall(r"\$labels\.(\w+)", template))


def _inside_string(text: str, position: int) -> bool:
    return any(m.start() < position < m.end() for m in re.finditer(_STRING, text))


def _is_duration(text: str, position: int) -> bool:
    """`m` of `5m` and `e` of `1e5` are no series, nor is what stands in a range."""
    before = text[:position]
    return bool(before) and (before[-1].isdigit() or before.rfind("[") > before.rfind("]"))
