"""`queuewatch run`: the streaming job with its status page."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from streaming.cli.options import ConfigFile


def run(
    config: ConfigFile,
    port: Annotated[int | None, typer.Option(help="Overrides http.port; 0 picks a free one.", min=0, max=65535)] = None,
) -> None:
    """Watch queues: read telemetry, judge it, publish metrics, signals and the status page."""
    from streaming.core.gc_pause import gc_paused

    # Modules are never garbage: looking for some among them took a tenth of the time of the imports.
    with gc_paused():
        from streaming.config import load_config

        loaded = load_config(config)
        if port is not None:
            loaded = loaded.model_copy(update={"http": loaded.http.model_copy(update={"port": port})})

        from streaming.spark.session import start_java_ahead

        # Java takes seconds to start, and the imports below take seconds too.
        start_java_ahead(loaded.spark, with_kafka=loaded.source.kafka is not None, log_level=loaded.log.spark_level)

        from streaming.cli.service import serve_until_stopped
    gc.freeze()
    serve_until_stopped(loaded)
