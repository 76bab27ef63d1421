"""`queuewatch state`: inspects, verifies, exports or reshards a checkpoint, offline."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from streaming.cli.errors import CommandError

app = typer.Typer(no_args_is_help=True, help="Inspect, verify, export or reshard a checkpoint, offline.")


def _folder(given: Path) -> Path:
    """Return the folder of a `file:` URI, as which `spark.checkpoint_dir` may be set; any other path unchanged."""
    if not str(given).startswith("file:"):
        return given
    from streaming.folder import local_folder

    local = local_folder(str(given))
    return local.path if local is not None else given


CheckpointFolder = Annotated[
    Path, typer.Argument(help="The folder set in spark.checkpoint_dir, or a copy of it.", callback=_folder)
]

_NO_SPACE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@contextmanager
def _files_named(where: Path) -> Iterator[None]:
    """Report the file that cannot be read or written, or `where` if the system names none, as on a full disk."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of standard output has seen enough
    except OSError as error:
        fix = "free space, or name another disk" if error.errno in _NO_SPACE else "name a folder or file that this user may use"
        raise CommandError(f"{error.filename or where}: {error.strerror}; {fix}") from error


def _print(line: str) -> None:
    """Print a line. That it cannot be written is no error of the checkpoint."""
    if sys.stdout is None:
        raise CommandError("standard output is closed: send it to a file or a program")
    try:
        typer.echo(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"standard output cannot be written: {error.strerror}") from error


@app.command()
def inspect(checkpoint: CheckpointFolder) -> None:
    """Show what a checkpoint holds: formats, shards, messages per queue, firing signals, undelivered records."""
    from streaming.cli.checkpoint_commands import inspected

    with _files_named(checkpoint):
        for line in inspected(checkpoint):
            _print(line)


@app.command()
def verify(checkpoint: CheckpointFolder) -> None:
    """Read everything the next start needs; name damaged files and exit with 1. Also works on a copy made while the job runs."""
    from streaming.cli.checkpoint_commands import verified

    with _files_named(checkpoint):
        sound, lines = verified(checkpoint)
    for line in lines:
        _print(line)
    raise typer.Exit(0 if sound else 1)


@app.command()
def export(
    checkpoint: CheckpointFolder,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of standard output.")] = None,
) -> None:
    """Print every message and every queue as JSON, one object per line."""
    from streaming.cli.checkpoint_commands import exported

    if out is None:
        with _files_named(checkpoint):
            for line in exported(checkpoint):
                _print(line)
        return
    with _files_named(checkpoint):
        lines = exported(checkpoint)  # a file is written only if there is something to write to it
    with _files_named(out):
        _write_lines(out, lines)


def _write_lines(out: Path, lines: Iterator[str]) -> None:
    """Write the lines to a file, which on failure keeps its former content."""
    if out.exists() and not out.is_file():
        with out.open("w", encoding="utf-8") as stream:  # a pipe, or /dev/stdout
            stream.writelines(f"{line}\n" for line in lines)
        return
    target = out.resolve()  # a link stays one
    scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        scratch.replace(target)
    except OSError as error:
        error.filename = str(out)
        raise
    finally:
        scratch.unlink(missing_ok=True)


@app.command()
def reshard(
    checkpoint: CheckpointFolder,
    shards: Annotated[int, typer.Option("--shards", help="Number of shards of the new checkpoint.", min=1, max=256)],
    out: Annotated[Path, typer.Option("--out", help="The folder of the new checkpoint; must not exist.", callback=_folder)],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="The configuration file (YAML) of the job. Needed if it marks other queues as ordered than when the checkpoint "
            "was made, or if an earlier release made that.",
        ),
    ] = None,
    spool_is_empty: Annotated[
        bool, typer.Option("--spool-is-empty", help="Confirm that files already read are no longer in the spool folder.")
    ] = False,
) -> None:
    """Create a new checkpoint with a different number of shards; the old one is not changed. Stop queuewatch first."""
    from streaming.cli.checkpoint_commands import resharded

    with _files_named(out):
        for line in resharded(checkpoint, shards, out, config, spool_is_empty=spool_is_empty):
            _print(line)
