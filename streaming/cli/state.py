"""`queuewatch state`: a checkpoint looked at, verified, exported or cut anew, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.options import OptionalConfigFile

app = typer.Typer(no_args_is_help=True, help="A checkpoint, offline: look at it, verify, export or cut it anew.")

CheckpointFolder = Annotated[Path, typer.Argument(help="The folder spark.checkpoint_dir names, or a copy of it.")]


@app.command()
def inspect(checkpoint: CheckpointFolder) -> None:
    """What a checkpoint holds: formats, shards, messages per queue, what fires, what waits for destinations."""
    from streaming.cli.stating import inspected

    for line in inspected(checkpoint):
        typer.echo(line)


@app.command()
def verify(checkpoint: CheckpointFolder) -> None:
    """Read everything the next start would need; exit code 1 names what is damaged. Works on a copy of a running checkpoint."""
    from streaming.cli.stating import verified

    sound, lines = verified(checkpoint)
    for line in lines:
        typer.echo(line)
    raise typer.Exit(0 if sound else 1)


@app.command()
def export(
    checkpoint: CheckpointFolder,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of standard output.")] = None,
) -> None:
    """Every message and every queue as JSON, one object a line."""
    from streaming.cli.stating import exported

    if out is None:
        for line in exported(checkpoint):
            typer.echo(line)
        return
    with out.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in exported(checkpoint))


@app.command()
def reshard(
    checkpoint: CheckpointFolder,
    shards: Annotated[int, typer.Option("--shards", help="How many shards the new checkpoint has.", min=1, max=256)],
    out: Annotated[Path, typer.Option("--out", help="The folder of the new checkpoint; must not exist.")],
    config: OptionalConfigFile = None,
    spool_is_empty: Annotated[
        bool, typer.Option("--spool-is-empty", help="The files that were read are no longer in the spool folder.")
    ] = False,
) -> None:
    """Make a new checkpoint with another number of shards; the old one stays as it is. Stop queuewatch first."""
    from streaming.cli.stating import resharded

    for line in resharded(checkpoint, shards, out, config, spool_is_empty=spool_is_empty):
        typer.echo(line)
