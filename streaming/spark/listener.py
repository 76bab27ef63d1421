"""Pass on Spark's progress reports. The listener only translates, and never calls Spark."""

from __future__ import annotations

import json
from collections.abc import Callable

import structlog

from streaming.health.progress import Progress, progress_of
from streaming.spark.internals import JsonListener

_log = structlog.get_logger(__name__)


class ProgressListener(JsonListener):
    """Passes each batch's `Progress` to a callable, on Spark's listener thread."""

    def __init__(self, on_progress: Callable[[Progress], None]) -> None:
        self._on_progress = on_progress

    def on_progress_json(self, text: str) -> None:
        """Handle a finished batch; `text` is Spark's report on it."""
        try:
            self._on_progress(progress_of(json.loads(text)))
        except Exception:
            # An exception raised here would end up in Spark's own log, where it goes unnoticed.
            _log.exception("progress_not_understood")

    def on_started(self, query_id: str, run_id: str) -> None:
        """Log the start of a query."""
        _log.info("query_started", query_id=query_id, run_id=run_id)
