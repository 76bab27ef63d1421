"""All dashboards."""

from __future__ import annotations

from collections.abc import Mapping

from alerts.config import AlertRulesConfig
from alerts.dashboards.build import dashboard_json
from alerts.dashboards.consumers import consumers
from alerts.dashboards.dead_letters import dead_letters
from alerts.dashboards.groups import groups
from alerts.dashboards.overview import overview
from alerts.dashboards.pipeline import pipeline
from alerts.dashboards.queue import queue
from alerts.dashboards.spec import Board, Context
from alerts.prometheus_rules import dashboard_uid
from streaming.core.thresholds import Thresholds


def boards(context: Context) -> tuple[Board, ...]:
    """Return every dashboard in reading order."""
    return (
        overview(context),
        queue(context),
        groups(context),
        dead_letters(context),
        consumers(context),
        pipeline(context),
    )


def dashboards(config: AlertRulesConfig, thresholds: Thresholds | None = None) -> Mapping[str, str]:
    """Return the JSON text of each dashboard by file name."""
    context = Context(config, thresholds or Thresholds())
    return {f"{dashboard_uid(board.name)}.json": dashboard_json(board, context) for board in boards(context)}
