"""From a clean clone to a page with signals: how long a new user waits."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.benchmarks import scrape
from tests.benchmarks.figures import Figure, Run
from tests.services.process import free_port

SIGNALS: Final = ("PoisonMessage", "DeadLetterArrived", "GroupStuck")
_GIVE_UP_AFTER_S: Final = 900
_ROOT: Final = Path(__file__).parents[2]


def measure(run: Run, *, quick: bool) -> None:
    """Clone the last commit and run `make demo` twice: first with empty caches, then again. There is no quick variant."""
    del quick
    run.say("clone: clean clone to a page with signals")
    with tempfile.TemporaryDirectory(prefix="queuewatch-clone-", ignore_cleanup_errors=True) as scratch:
        clone = Path(scratch, "queuewatch")
        subprocess.run(["git", "clone", "-q", "--no-local", str(_ROOT), str(clone)], check=True)
        # Remove what this shell provides and a new user's shell does not have.
        helped = ("VIRTUAL_ENV", "PYTHONPATH", "QUEUEWATCH_CACHE", "PYSPARK_PYTHON", "JAVA_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in helped}
        environment |= {"QUEUEWATCH_CACHE": f"{scratch}/cache", "PIP_NO_CACHE_DIR": "1"}
        for state in ("cold", "warm"):
            _demo(run, clone, environment, state)


def _demo(run: Run, clone: Path, environment: dict[str, str], state: str) -> None:
    port = free_port()
    log = clone.parent / f"{state}.log"
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["make", "demo", f"ARGS=--for {_GIVE_UP_AFTER_S}s --port {port}"],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        reached = _watch(process, f"http://127.0.0.1:{port}", began)
    finally:
        _stop(process)
    for name in ("page", *SIGNALS):
        if name not in reached:
            words = " | ".join(log.read_text(errors="replace").splitlines()[-5:])
            raise RuntimeError(f"the demo did not get to {name}: {words}")
    what = f"clean clone, {state}: `make demo` until the page answers"
    run.add(Figure(f"clone.{state}.page", what, reached["page"], "s"))
    last_s = max(reached[name] for name in SIGNALS)
    detail = {name: round(seconds, 1) for name, seconds in reached.items()}
    what = f"clean clone, {state}: until it shows {', '.join(SIGNALS)}"
    run.add(Figure(f"clone.{state}.signals", what, last_s, "s", detail=detail))


def _watch(process: subprocess.Popen[bytes], url: str, began: float) -> dict[str, float]:
    """Return the seconds until the page answered, and until each signal was first seen firing."""
    reached: dict[str, float] = {}
    while len(reached) <= len(SIGNALS) and process.poll() is None:
        elapsed_s = time.monotonic() - began
        if elapsed_s > _GIVE_UP_AFTER_S:
            break
        try:
            found = scrape.totals(scrape.page(url))
        except OSError:
            time.sleep(0.2)
            continue
        reached.setdefault("page", elapsed_s)
        for name in SIGNALS:
            if any(f'signal="{name}"' in key and value > 0 for key, value in found.items()):
                reached.setdefault(name, elapsed_s)
        time.sleep(0.2)
    return reached


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    # make and the demo are in one process group; Ctrl-C reaches both, as in a terminal.
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
