"""Run the benchmarks: `python -m tests.benchmarks [SECTION…] [--quick] [--out FILE]`."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from streaming.spark.runtime import RuntimeUnavailable
from tests.benchmarks import (
    alert_latency,
    client,
    first_run,
    fleet,
    latency,
    live,
    micro,
    outage,
    page,
    pager,
    queues,
    scale,
    shapes,
    throughput,
)
from tests.benchmarks.figures import Run
from tests.benchmarks.jvm import Jvm, NoCompiler
from tests.benchmarks.machine import Machine
from tests.services import kafka, place
from tests.services.process import ServiceUnavailable

WITH_KAFKA: dict[str, Callable[..., None]] = {
    "throughput": throughput.measure,
    "live": live.measure,
    "large": live.measure_large,
    "shapes": shapes.measure,
    "latency": latency.measure,
    "fleet": fleet.measure,
}
ALONE: dict[str, Callable[..., None]] = {
    "micro": micro.measure,
    "queues": queues.measure,
    "outage": outage.measure,
    "scale": scale.measure,
    "client": client.measure,
    "alerts": alert_latency.measure,
    "page": page.measure,
    "clone": first_run.measure,
}
SECTIONS = ("micro", "queues", "outage", "scale", "client", *WITH_KAFKA, "alerts", "page", "pager", "clone")
BY_DEFAULT = tuple(name for name in SECTIONS if name not in ("fleet", "clone"))
OUT = Path("build/bench.json")
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def main(arguments: list[str]) -> int:
    """Measure, print the table and write the JSON; return 1 if a promised bound is missed or a section failed."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default: all but fleet and clone"
    )
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="of section pager: faults of each kind; default 30")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load: does it work, not how fast")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where the JSON goes; default {OUT}")
    parser.add_argument("--publish", action="store_true", help=f"also put the table into {PAGE.name}")
    options = parser.parse_args(arguments)
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}; choose from {', '.join(SECTIONS)}")
    wanted = options.sections or BY_DEFAULT
    os.environ.setdefault(place.VARIABLE, "processes")  # the same on every machine, so that figures are comparable
    run = Run(Machine.here())
    run.say(f"{run.machine.commit} on {run.machine.words}")
    if run.machine.load_before > run.machine.cores / 4:
        run.say("this machine is busy: the figures will be of its other work too")
    try:
        rounds = min(options.rounds, 3) if options.quick else options.rounds
        _measure(run, [name for name in SECTIONS if name in wanted], quick=options.quick, rounds=rounds)
    finally:
        # Keep minutes of measurements even if the last section is interrupted.
        run.print_table()
        run.write_json(options.out)
        run.say(f"written to {options.out}")
    if options.publish and not run.failed:
        run.publish(PAGE)
    return 1 if run.failed or any(figure.holds is False for figure in run.figures) else 0


def _measure(run: Run, names: list[str], *, quick: bool, rounds: int) -> None:
    with ExitStack() as stack:
        try:
            bench = _bench(stack) if any(name in WITH_KAFKA for name in names) else None
        except (NoCompiler, ServiceUnavailable, RuntimeUnavailable) as missing:
            bench = None
            for name in WITH_KAFKA:
                if name in names:
                    run.leave_out(name, str(missing))
        for name in names:
            run.say(f"section {name}")
            try:
                if name == "pager":
                    pager.measure(run, rounds=rounds)
                elif name not in WITH_KAFKA:
                    ALONE[name](run, quick=quick)
                elif bench is not None:
                    WITH_KAFKA[name](run, *bench, quick=quick)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                run.fail(name, str(error))


def _bench(stack: ExitStack) -> tuple[kafka.Kafka, Jvm, int]:
    """Start a broker, compile the Java programs, and choose the number of cores."""
    jvm = Jvm()
    stack.callback(jvm.close)
    return stack.enter_context(kafka.start()), jvm, min(2, len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    # A SIGTERM to this process must also stop the broker and the job.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(f"ended by signal {number}"))
    sys.exit(main(sys.argv[1:]))
