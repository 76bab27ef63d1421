"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path,
    typer.Option("--config", "-c", help="The configuration file (YAML); QUEUEWATCH_SECTION__KEY variables override it."),
]
OptionalConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="A configuration file (YAML), for example for thresholds."),
]
