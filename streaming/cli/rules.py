"""`queuewatch rules`: writes all files generated from the alert catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import OptionalConfigFile


def rules(
    out: Annotated[Path, typer.Option("--out", help="The output folder; other files in it are left alone.")],
    config: OptionalConfigFile = None,
) -> None:
    """Write the Prometheus rules, the PrometheusRule, the mixin, the dashboards and the runbook."""
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
