"""The `queuewatch` command: one small file per subcommand, which imports its dependencies only when it runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streaming.cli import check_config, collect, demo, doctor, explain, replay, rules, run, state
from streaming.cli.errors import reported


class _Commands(TyperGroup):
    """The group of all commands: its errors do not name the library that found them."""

    def invoke(self, ctx: Any) -> Any:
        """Parse and run a command. Typer passes on pydantic's text for an option that is not one of its choices."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="queuewatch",
    cls=_Commands,
    help="Per-message health of message queues: poison messages, stuck groups and dead letters, live.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("collect")(collect.collect)
app.command("replay")(replay.replay)
app.command("check-config")(check_config.check_config)
app.command("rules")(rules.rules)
app.add_typer(doctor.app, name="doctor")
app.command("explain")(explain.explain)
app.add_typer(state.app, name="state")


@app.command("version")
def version() -> None:
    """Print the versions of queuewatch and of its main dependencies."""
    from streaming.cli.versions import all_versions

    for name, number in all_versions():
        typer.echo(f"{name} {number}")


def _print_version(wanted: bool) -> None:
    if wanted:
        from streaming.release import own_version

        typer.echo(f"queuewatch {own_version()}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; user and environment errors end in one line and an exit code."""
    # None where it is closed, as by `2>&-` or a supervisor that keeps no log.
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    with reported():
        app()


if __name__ == "__main__":
    main()
