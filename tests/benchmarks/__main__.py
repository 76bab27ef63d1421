"""Run the benchmarks: `python -m tests.benchmarks [SECTION…] [--quick] [--out FILE]`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from streaming.spark.runtime import RuntimeUnavailable
from tests.benchmarks import alert_latency, first_run, latency, live, micro, throughput
from tests.benchmarks.figures import Run
from tests.benchmarks.jvm import Jvm, NoCompiler
from tests.benchmarks.machine import Machine
from tests.services import kafka
from tests.services.process import ServiceUnavailable

WITH_KAFKA: dict[str, Callable[..., None]] = {
    "throughput": throughput.measure,
    "live": live.measure,
    "latency": latency.measure,
}
BY_DEFAULT = ("micro", *WITH_KAFKA, "alerts")
SECTIONS = (*BY_DEFAULT, "clone")
OUT = Path("build/bench.json")
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def main(arguments: list[str]) -> int:
    """Measure, print the table, write the JSON. 1 when a promised bound is missed."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default: all but clone")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load: does it work, not how fast")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where the JSON goes; default {OUT}")
    parser.add_argument("--publish", action="store_true", help=f"also put the table into {PAGE.name}")
    options = parser.parse_args(arguments)
    unknown = set(options.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}; choose from {', '.join(SECTIONS)}")
    wanted = options.sections or BY_DEFAULT
    # Whoever ends the run ends the broker and the job with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    run = Run(Machine.here())
    run.say(f"{run.machine.commit} on {run.machine.words}")
    if "micro" in wanted:
        micro.measure(run, quick=options.quick)
    _with_kafka(run, [name for name in WITH_KAFKA if name in wanted], quick=options.quick)
    if "alerts" in wanted:
        run.say("alerts: from a changed series to a webhook, with Prometheus and Alertmanager")
        alert_latency.measure(run, quick=options.quick)
    if "clone" in wanted:
        first_run.measure(run)
    run.print_table()
    run.write_json(options.out)
    run.say(f"written to {options.out}")
    if options.publish:
        run.publish(PAGE)
    return 1 if any(figure.holds is False for figure in run.figures) else 0


def _with_kafka(run: Run, names: list[str], *, quick: bool) -> None:
    if not names:
        return
    parallelism = min(2, len(os.sched_getaffinity(0)))
    with ExitStack() as stack:
        try:
            jvm = Jvm()
            stack.callback(jvm.close)
            broker = stack.enter_context(kafka.start())
        except (NoCompiler, ServiceUnavailable, RuntimeUnavailable) as missing:
            for name in names:
                run.leave_out(name, str(missing))
            return
        for name in names:
            WITH_KAFKA[name](run, broker, jvm, parallelism, quick=quick)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
