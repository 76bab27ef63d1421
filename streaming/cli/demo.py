"""`queuewatch demo`: watches a small shop with typical queue problems."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Annotated

import typer

EXPLAINED = (
    "orders          one order cannot be processed: watch its receive count rise until it is moved to orders-dlq,",
    "                which a job empties at once: the depth never shows a problem, but the arrival is counted",
    "payments.fifo   one payment of customer-3 hangs: that customer's other payments wait, all others flow",
    "invoices        a message hangs one of two consumers until its window ends, then the other one; there is no",
    "                dead-letter queue, which is reported",
    "emails          its producer is not instrumented, as in the middle of a rollout: the page says so, and what to do next",
)


def demo(
    for_: Annotated[str | None, typer.Option("--for", help="Stop this long after the first results: 90s, 5m.")] = None,
    port: Annotated[int, typer.Option(help="Port of the status page; 0 picks a free one.", min=0, max=65535)] = 9400,
) -> None:
    """Watch a shop with typical queue problems on a local stand-in for SQS; needs no broker, container or Java."""
    if find_spec("moto") is None or find_spec("flask") is None:
        from streaming.cli.errors import CommandError

        raise CommandError(
            "the demo's stand-in for SQS is not installed; in a checkout: pip install './client' '.[demo]', or make demo"
        )
    from sinks.clock import wall_ms
    from sinks.http import check_address
    from sinks.terminal import closing_lines, show
    from streaming.cli.signals import stopped_by_signals
    from streaming.demo.run import HOST, run_demo
    from streaming.replay.times import parse_duration_ms

    try:
        for_s = None if for_ is None else parse_duration_ms(for_) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from error
    check_address(HOST, port, change="--port")
    for line in introduction():
        typer.echo(line)
    stop = threading.Event()
    with stopped_by_signals(stop):
        store = run_demo(
            port=port,
            for_s=for_s,
            stop=stop,
            on_address=lambda url: typer.echo(f"\nStatus page: {url}/   metrics: {url}/metrics   stop: Ctrl-C\n"),
            show=lambda watched, url: show(watched, stop, url=url),
        )
    typer.echo("\nResults:")
    for line in closing_lines(store, wall_ms()):
        typer.echo(f"  {line}")


def introduction() -> Iterator[str]:
    """Return the lines that say what will be seen, and which limits are not the defaults."""
    from streaming.core.settings import Settings
    from streaming.demo.run import THRESHOLDS

    yield "Starting a small shop on a stand-in for SQS, and the job that watches it (Spark takes some seconds):\n"
    for line in EXPLAINED:
        yield f"  {line}"
    usual = Settings().defaults
    yield (
        f"\nTo show that within a minute, the demo has shorter limits: GroupStuck after {THRESHOLDS['group_stuck_min_s']} s "
        f"(default: {usual.group_stuck_min_s:.0f} s or more),\nSlowConsumer after {THRESHOLDS['slow_hold_min_s']} s "
        f"(default: {usual.slow_hold_min_s:.0f} s or more)."
    )
