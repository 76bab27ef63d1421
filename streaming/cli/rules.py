"""`queuewatch rules`: everything that is generated from the catalogue of signals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import OptionalConfigFile


def rules(
    out: Annotated[Path, typer.Option("--out", help="The folder to write to; files of other names are left alone.")],
    config: OptionalConfigFile = None,
) -> None:
    """Write Prometheus rules, PrometheusRule, mixin, dashboards and runbook."""
    from alerts.rules import generate
    from streaming.cli.errors import CommandError
    from streaming.config import load_config, to_settings

    loaded = load_config(config)
    try:
        written = generate(out, loaded.section("alerts"), to_settings(loaded).defaults)
    except OSError as error:
        raise CommandError(f"{out} cannot be written ({error.strerror}); name another folder with --out") from error
    for path in written:
        typer.echo(path)
