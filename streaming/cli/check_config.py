"""`queuewatch check-config`: validates a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check_config(file: Annotated[Path, typer.Argument(help="The configuration file (YAML).")]) -> None:
    """Check a configuration file and the environment's overrides; if there are errors, list all of them and exit with 2."""
    from streaming.config import load_config
    from streaming.config.check import check_destination, check_files, check_http, summary, unread_variables, warnings

    config = load_config(file)
    check_files(config)
    check_http(config)
    check_destination(config)
    typer.echo(f"{file}: OK")
    for line in summary(config):
        typer.echo(f"  {line}")
    for line in (*warnings(config), *unread_variables(config)):
        typer.secho(f"  warning: {line}", fg=typer.colors.YELLOW)
