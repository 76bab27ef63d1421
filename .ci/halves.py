"""Runs all tests in two parallel processes, because tests mostly wait for a broker, a browser or Java.

Usage: python .ci/halves.py [OPTION OF PYTEST]…

One process runs the files of tests/ from the first to the last, the other from the last to the first, until they meet: both
end at about the same time, and few services are started twice. The output of the second follows that of the first. Exits
with 1 if either fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run both halves and return the exit code."""
    with tempfile.TemporaryFile("w+b") as kept, tempfile.TemporaryDirectory(prefix="queuewatch-halves-") as claims:
        # The count of all tests says nothing about the progress of one half, so none is shown.
        pytest = [sys.executable, "-m", "pytest", "-q", "-o", "console_output_style=classic", "-p", "tests.halves"]
        # As two arguments, the folder would be taken for the place of the tests, where pytest looks for its configuration.
        pytest += [f"--claims={claims}", *sys.argv[1:]]
        # Two processes writing one failure cache would corrupt it.
        backwards = [*pytest, "-p", "no:cacheprovider", "--backwards"]
        second = subprocess.Popen(backwards, cwd=ROOT, stdout=kept, stderr=subprocess.STDOUT)
        try:
            codes = [subprocess.run(pytest, cwd=ROOT, check=False).returncode]
            print("\nOutput of the other half:\n", flush=True)
            codes.append(second.wait())
        finally:
            second.terminate()
        kept.seek(0)
        sys.stdout.buffer.write(kept.read())
        sys.stdout.flush()
        same = len(list(Path(claims).glob("collected-*"))) <= 1
        if not same:
            print("The two halves collected different tests, so some may not have run", file=sys.stderr)
    return int(any(codes) or not same)


if __name__ == "__main__":
    raise SystemExit(main())
