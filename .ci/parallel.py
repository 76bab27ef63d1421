"""Runs all tests in four parallel processes, because tests mostly wait for a broker, a browser or Java.

Usage: python .ci/parallel.py [OPTION OF PYTEST]…

Two processes begin with the files that need services, one with the first and one with the last of them, so that few services
are started twice. Two begin with the files that need none, which use the processor while the others wait. Each goes on until
no file is left. With `--fast`, which starts no services, only the latter two run. The output of the others follows that of the
first. Exits with 1 if any fails. SIGTERM ends all of them; each stops the services that it started.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ORDERS = ("services-first", "services-first-backwards", "services-last", "services-last-backwards")
ORDERS_FAST = ORDERS[2:]


def main(options: list[str]) -> int:
    """Run all processes and return the exit code."""
    first, *others = ORDERS_FAST if "--fast" in options else ORDERS
    with tempfile.TemporaryDirectory(prefix="queuewatch-tests-") as claims, ExitStack() as stack:
        # The count of all tests says nothing about the progress of one process, so none is shown.
        pytest = [sys.executable, "-m", "pytest", "-q", "-o", "console_output_style=classic", "-p", "tests.parallel"]
        # As two arguments, the folder would be taken for the place of the tests, where pytest looks for its configuration.
        pytest += [f"--claims={claims}", *options]
        started = []
        for order in others:
            output = stack.enter_context(tempfile.TemporaryFile("w+b"))
            # Two processes writing one failure cache would corrupt it.
            command = [*pytest, "-p", "no:cacheprovider", f"--order={order}"]
            process = stack.enter_context(_stopped(subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)))
            started.append((order, process, output))
        codes = [stack.enter_context(_stopped(subprocess.Popen([*pytest, f"--order={first}"], cwd=ROOT))).wait()]
        for order, process, output in started:
            codes.append(process.wait())
            print(f"\nOutput of the process with {order}:\n", flush=True)
            output.seek(0)
            sys.stdout.buffer.write(output.read())
            sys.stdout.flush()
        same = len(list(Path(claims).glob("collected-*"))) <= 1
        if not same:
            print("The processes collected different tests, so some may not have run", file=sys.stderr)
    return int(any(codes) or not same)


@contextmanager
def _stopped(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End a process with the block, and give it the time to stop its services. After Ctrl-C it is ending already."""
    try:
        yield process
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt):
            process.terminate()
        raise
    finally:
        process.wait()


def _exit(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _exit)
    raise SystemExit(main(sys.argv[1:]))
