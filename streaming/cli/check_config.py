"""`queuewatch check-config`: is this file good?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def check_config(file: Annotated[Path, typer.Argument(help="The configuration file (YAML).")]) -> None:
    """Check a configuration file, with the environment's overrides; exit code 2 names everything that is wrong."""
    from streaming.config import load_config
    from streaming.config.check import check_files, summary, warnings

    config = load_config(file)
    check_files(config)
    typer.echo(f"{file}: good")
    for line in summary(config):
        typer.echo(f"  {line}")
    for line in warnings(config):
        typer.secho(f"  warning: {line}", fg=typer.colors.YELLOW)
