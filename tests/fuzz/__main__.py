"""Fuzz for some time.

Usage: python -m tests.fuzz [--seconds N] [--seed N] [TARGET…]

With atheris installed (`pip install atheris`; it is not among the locked packages, because it has no wheel for every
supported Python) and `--atheris`, one target is fuzzed by coverage. An input that fails is written to `artifacts/fuzz`, and
the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Final

from sources.wire.scan import is_compiled
from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, Target

HANGS_AFTER_S: Final = 20
MEMORY_BYTES: Final = 4 << 30
_KEPT: Final = 64


def main() -> int:
    """Run as the usage describes."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--atheris", action="store_true")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    names = options.targets or list(TARGETS)
    if "scan" in names and not is_compiled():
        names.remove("scan")
        sys.stdout.write("scan: no inputs, because the scan in C is not compiled\n")
    if options.atheris:
        return _by_coverage(names[0], options.seconds)
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    failed = False
    for name in names:
        tried, problem = fuzz(TARGETS[name], options.seconds / len(names), seed)
        sys.stdout.write(f"{name}: {tried:,} inputs, seed {seed}\n")
        if problem is not None:
            failed = True
            sys.stdout.write(f"{name}: {keep(name, problem[0])}\n{problem[1]}\n")
    return int(failed)


def fuzz(target: Target, seconds: float, seed: int) -> tuple[int, tuple[bytes, str] | None]:
    """Return the number of inputs tried, and the input that failed with its traceback, or None."""
    draw = random.Random(seed)
    pool = list(target.seeds())
    deadline_s, tried = time.monotonic() + seconds, 0
    signal.signal(signal.SIGALRM, _hangs)
    for content in pool:
        if (problem := _tried(target, content)) is not None:
            return tried, (content, problem)
    while time.monotonic() < deadline_s:
        content = mutated(draw, draw.choice(pool), draw.choice(pool))
        tried += 1
        if (problem := _tried(target, content)) is not None:
            return tried, (content, problem)
        if draw.randrange(50) == 0:
            if len(pool) < _KEPT:
                pool.append(content)
            else:
                pool[draw.randrange(len(target.seeds()), _KEPT)] = content
    return tried, None


def keep(name: str, content: bytes) -> Path:
    """Write an input to the folder for failures."""
    path = Path("artifacts", "fuzz", f"{name}-{hashlib.blake2b(content, digest_size=6).hexdigest()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _tried(target: Target, content: bytes) -> str | None:
    signal.alarm(HANGS_AFTER_S)
    try:
        target.run(content)
    except BaseException:
        return traceback.format_exc(limit=-12)
    finally:
        signal.alarm(0)
    return None


def _hangs(*_: object) -> None:
    raise TimeoutError(f"one input takes more than {HANGS_AFTER_S} s")


def _by_coverage(name: str, seconds: float) -> int:
    # It is not among the locked packages.
    atheris: Any = __import__("atheris")
    target = TARGETS[name]
    corpus = Path("artifacts", "fuzz", f"{name}-corpus")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(content)
    atheris.instrument_all()
    atheris.Setup(
        [name, f"-max_total_time={seconds:.0f}", f"-timeout={HANGS_AFTER_S}", "-max_len=65536", str(corpus)], target.run
    )
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
