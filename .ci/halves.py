"""Runs all tests in two parallel processes, because tests mostly wait for a broker, a browser or Java.

Usage: python .ci/halves.py [OPTION OF PYTEST]…

Each folder of tests/ runs as a whole in one half, so that few services are started twice. The output of the second half
follows that of the first. Exits with 1 if either fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST = ("benchmarks", "client", "crash", "deploy", "docs", "e2e", "fuzz", "proxy", "sdks", "services", "sinks", "sources")
"""The folders of one half; the other half runs all others."""


def main() -> int:
    """Run both halves and return the exit code."""
    tests = sorted(p for p in (ROOT / "tests").iterdir() if (p / "__init__.py").exists() or p.name.startswith("test_"))
    first = [str(p) for p in tests if p.name in FIRST]
    rest = [str(p) for p in tests if p.name not in FIRST]
    with tempfile.TemporaryFile("w+b") as kept:
        pytest = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:]]
        # Two processes writing one failure cache would corrupt it.
        second = subprocess.Popen([*pytest, "-p", "no:cacheprovider", *rest], cwd=ROOT, stdout=kept, stderr=subprocess.STDOUT)
        try:
            codes = [subprocess.run([*pytest, *first], cwd=ROOT, check=False).returncode]
            print("\nOutput of the other half:\n", flush=True)
            codes.append(second.wait())
        finally:
            second.terminate()
        kept.seek(0)
        sys.stdout.buffer.write(kept.read())
        sys.stdout.flush()
    return int(any(codes))


if __name__ == "__main__":
    raise SystemExit(main())
