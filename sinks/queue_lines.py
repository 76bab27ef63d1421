"""The exposition's lines about one queue, which may have a hundred of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from streaming.judge.metrics import Metric, Values
from streaming.judge.snapshot import QueueView

_QUEUE: Final = "\x01"
"""Stands for the queue's own labels in a template."""
_END: Final = "\x00\n"
"""Ends a family's lines. It is in none of them: only a value stands at the end of a line."""


class AgeLines(NamedTuple):
    """Lines of ages, whose values are computed when they are scraped."""

    starts: tuple[str, ...]
    """Each line up to its value…"""
    times_ms: tuple[int, ...]
    """…and the time (epoch milliseconds) from or until which the value counts."""


_NO_AGES: Final = AgeLines((), ())


class QueueLines:
    """Writes the lines of all samples of a queue at once.

    Which samples are known differs little between queues, and each of those variants is a template for all lines.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        """Of `metrics`, those with values per queue are written; the others are left out."""
        self.metrics = [metric for metric in metrics if metric.of_queue is not None]
        self._sources = [metric.of_queue for metric in self.metrics if metric.of_queue is not None]
        self._templates: dict[object, str] = {}

    def of(self, queue: QueueView, labels: str) -> list[bytes]:
        """Return the lines of each metric; `labels` is the text of the queue's own labels."""
        if not self.metrics:
            return []
        found = [of_queue(queue) for of_queue in self._sources]
        variant: object = tuple(map(len, found))
        values: Sequence[float | None] = tuple(chain.from_iterable(found))
        if not _all_known(values):
            variant = tuple([tuple(map(_known, of_metric)) for of_metric in found])
            values = tuple(filter(_known, values))
        template = self._templates.get(variant)
        if template is None:
            template = self._templates[variant] = self._template(found)
        return encoded((template % values).replace(_QUEUE, labels)).split(_END.encode())

    def _template(self, found: Sequence[Values]) -> str:
        return _END.join([_lines(metric, values) for metric, values in zip(self.metrics, found, strict=True)])


def _lines(metric: Metric, values: Values) -> str:
    known = (series for series, value in zip(metric.series, values, strict=True) if _known(value)) if values else ()
    return "".join([f"{metric.name}{suffix}{{{_QUEUE}{_own_labels(metric, own)}}} %s\n" for suffix, own in known])


def with_sum(lines: bytes, sum_s: float) -> bytes:
    """Return the lines of one queue's histogram with another sum, which is the last value."""
    return b"%s%s\n" % (lines[: lines.rindex(b" ") + 1], str(sum_s).encode()) if lines else lines


def info_line(metric: Metric, queue: QueueView, labels: str) -> bytes:
    """Return the line of a series whose value is always 1."""
    assert metric.info is not None
    own = "".join([f',{name}="{escape_label(value)}"' for name, value in metric.info(queue).items()])
    return encoded(f"{metric.name}{{{labels}{own}}} 1\n")


def age_lines(metric: Metric, queue: QueueView, labels: str) -> AgeLines:
    """Return the lines of a family of ages."""
    assert metric.times is not None
    found = list(metric.times(queue))
    if not found:
        return _NO_AGES
    starts = [f"{metric.name}{{{labels}{_own_labels(metric, own)}}} " for own, _ in found]
    return AgeLines(tuple(starts), tuple([at_ms for _, at_ms in found]))


def _own_labels(metric: Metric, values: tuple[str, ...]) -> str:
    return f',{metric.labels[0]}="{escape_label(values[0])}"' if values else ""


def queue_labels(queue: QueueView) -> str:
    """Return the text of the labels that all series of a queue have."""
    system, scope, name = map(escape_label, queue.name)
    return f'system="{system}",scope_id="{scope}",queue="{name}"'


def labels_text(labels: Mapping[str, str]) -> str:
    """Return the text of all labels of a series."""
    return "{" + ",".join([f'{name}="{escape_label(value)}"' for name, value in labels.items()]) + "}" if labels else ""


@lru_cache(maxsize=4096)
def escape_label(value: str) -> str:
    """Escape a label's value for use between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def encoded(text: str) -> bytes:
    """Encode text, of which a name may hold half of a surrogate pair: JSON can represent that and UTF-8 cannot."""
    return text.encode("utf-8", "replace")


def _all_known(values: Sequence[float | None]) -> bool:
    try:
        return math.isfinite(sum(values))  # type: ignore[arg-type] # a None among them raises
    except TypeError:
        return False


def _known(value: float | None) -> bool:
    """Prometheus accepts NaN and infinity, but they spoil every sum."""
    return value is not None and math.isfinite(value)
