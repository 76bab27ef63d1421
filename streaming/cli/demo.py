"""`queuewatch demo`: a small shop with the usual troubles, watched."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

EXPLAINED = (
    "orders          one order cannot be processed: watch its receive count climb until it is moved to orders-dlq,",
    "                which a job empties at once: by depth nothing was ever wrong, its arrival is counted all the same",
    "payments.fifo   one payment of customer-3 hangs: that customer's others wait behind it, everybody else's flow",
    "invoices        one of two consumers sits on a message until its window ends, then the next one does: there is no",
    "                dead-letter queue, which is pointed out",
)


def demo(
    for_: Annotated[str | None, typer.Option("--for", help="End after so long, counted from the first results: 90s, 5m.")] = None,
    port: Annotated[int, typer.Option(help="Where the status page is; 0 takes any free one.", min=0, max=65535)] = 9400,
) -> None:
    """Watch a shop with the usual troubles on a local stand-in for SQS: no broker, no container, no Java needed."""
    from sinks.clock import wall_ms
    from sinks.terminal import closing_lines, show
    from streaming.cli.signals import stopped_by_signals
    from streaming.demo.run import run_demo
    from streaming.replay.times import parse_duration_ms

    try:
        for_s = None if for_ is None else parse_duration_ms(for_) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from error
    typer.echo("A small shop opens on a stand-in for SQS, and the job that watches it starts (Spark takes some seconds):\n")
    for line in EXPLAINED:
        typer.echo(f"  {line}")
    stop = threading.Event()
    with stopped_by_signals(stop) as listen_again:
        store = run_demo(
            port=port,
            for_s=for_s,
            stop=stop,
            on_address=lambda url: typer.echo(f"\nStatus page: {url}/   metrics: {url}/metrics   stop: Ctrl-C\n"),
            on_spark_up=listen_again,
            show=lambda watched, url: show(watched, stop, url=url),
        )
    typer.echo("\nWhat was seen:")
    for line in closing_lines(store, wall_ms()):
        typer.echo(f"  {line}")
