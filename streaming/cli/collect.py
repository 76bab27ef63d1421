"""`queuewatch collect`: observes queues from outside and writes events."""

from __future__ import annotations

from typing import Annotated

import typer

from streaming.cli.options import ConfigFile


def collect(
    kind: Annotated[
        str, typer.Argument(help="sqs, activemq, cloudflare, sqs-telemetry, or a kind that an installed package provides.")
    ],
    config: ConfigFile,
    to: Annotated[
        str | None,
        typer.Option(help="Overrides collect.to: kafka://host:9092/topic, spool:/folder, http://host:9400/api/v1/events."),
    ] = None,
) -> None:
    """Run one collector until SIGTERM or SIGINT."""
    from streaming.cli.collecting import collect_until_stopped
    from streaming.config import load_config

    collect_until_stopped(load_config(config), kind, to)
