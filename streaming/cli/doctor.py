"""`queuewatch doctor`: what is misconfigured at the queues, with the fix."""

from __future__ import annotations

from typing import Annotated

import typer

from streaming.cli.options import ConfigFile


def doctor(
    kind: Annotated[str, typer.Argument(help="sqs, activemq or cloudflare.")],
    config: ConfigFile,
) -> None:
    """Look at the queues of `collect.KIND` once and say what is wrong; exit code 1 when something must be mended."""
    import importlib

    from sources.collect import SECTIONS
    from streaming.cli.collecting import section_of
    from streaming.cli.errors import CommandError
    from streaming.config import load_config

    section = section_of(load_config(config), kind)
    module = f"sources.{SECTIONS[kind]}.doctor"
    try:
        examine = importlib.import_module(module).run_doctor
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise CommandError(f"there is no doctor for {kind} in this release") from error
    raise typer.Exit(examine(section, typer.echo))
