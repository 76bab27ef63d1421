"""Every metric queuewatch publishes. The only place where a metric is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from streaming.judge.metrics.metric import QUEUE_LABELS as QUEUE_LABELS
from streaming.judge.metrics.metric import Metric as Metric
from streaming.judge.metrics.metric import Series as Series
from streaming.judge.metrics.metric import Values as Values
from streaming.judge.metrics.metric import le_label as le_label
from streaming.judge.metrics.names import MetricName as MetricName
from streaming.judge.metrics.samples import Sample as Sample
from streaming.judge.metrics.samples import samples as samples
from streaming.judge.metrics.sink_metrics import SINK_METRICS as SINK_METRICS
from streaming.judge.metrics.table import METRICS as METRICS
from streaming.judge.metrics.values import OTHER as OTHER

METRIC_BY_NAME: Mapping[str, Metric] = {m.name: m for m in (*METRICS, *SINK_METRICS)}
assert tuple(METRIC_BY_NAME) == get_args(MetricName)
