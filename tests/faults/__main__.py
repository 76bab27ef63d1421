"""Break a running service in each way, restart it where an init system would, and compare the counts.

Usage: python -m tests.faults [--events-per-s N] [--times N] [--cluster] [FAULT…]

The full disk needs root. The driver is killed ten times, every other fault happens once. Where a fault happens several
times, its figures are the median and the range. Prints one line of the table in docs/reliability.md per fault, and exits
with 1 if anything was lost or doubled.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

from tests.faults.cluster_faults import CLUSTER
from tests.faults.destination import DESTINATION
from tests.faults.kafka import KAFKA
from tests.faults.one_machine import ONE_MACHINE
from tests.faults.trial import HEAD, tried

FAULTS: Final = {**ONE_MACHINE, **KAFKA, **DESTINATION, **CLUSTER}


def main() -> int:
    """Run as the usage describes."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--events-per-s", type=int, default=5_000)
    parser.add_argument("--times", type=int, help="how often each fault happens in its run")
    parser.add_argument("--cluster", action="store_true", help="those of a job on a Spark cluster")
    options = parser.parse_args()
    sys.stdout.write(HEAD)
    wrong = False
    for name in options.faults or (CLUSTER if options.cluster else FAULTS):
        outcome = tried(FAULTS[name], options.events_per_s, options.times or FAULTS[name].times)
        wrong |= bool(outcome.lost or outcome.doubled)
        sys.stdout.write(outcome.row + "\n")
        sys.stdout.flush()
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
