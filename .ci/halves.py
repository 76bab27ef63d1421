"""Runs all tests in two processes side by side: most of a test's time is waiting for a broker, a browser or Java.

Usage: python .ci/halves.py

Whole folders of tests/ go to one half each, so that a service is started for few of them twice. The output of the second half
follows that of the first. Exits with 1 when either fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST = ("benchmarks", "client", "crash", "deploy", "docs", "e2e", "fuzz", "proxy", "sdks", "services", "sinks", "sources")
"""Folders of one half; the other has the rest, whatever is added."""


def main() -> int:
    """Do what the usage says."""
    tests = sorted(p for p in (ROOT / "tests").iterdir() if (p / "__init__.py").exists() or p.name.startswith("test_"))
    first = [str(p) for p in tests if p.name in FIRST]
    rest = [str(p) for p in tests if p.name not in FIRST]
    with tempfile.TemporaryFile("w+b") as kept:
        pytest = [sys.executable, "-m", "pytest", "-q"]
        # Two that write one cache of failures would spoil it.
        second = subprocess.Popen([*pytest, "-p", "no:cacheprovider", *rest], cwd=ROOT, stdout=kept, stderr=subprocess.STDOUT)
        try:
            codes = [subprocess.run([*pytest, *first], cwd=ROOT, check=False).returncode]
            print("\nThe other half, which ran beside it:\n", flush=True)
            codes.append(second.wait())
        finally:
            second.terminate()
        kept.seek(0)
        sys.stdout.buffer.write(kept.read())
        sys.stdout.flush()
    return int(any(codes))


if __name__ == "__main__":
    raise SystemExit(main())
