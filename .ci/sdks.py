"""Create an environment for each SDK used in the proxy tests, in `.venv-sdks/NAME` from `tests/sdks/NAME.txt`.

Usage: python .ci/sdks.py

The SDKs need different releases of the same packages, so that none of them can be installed in `.venv`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venv-sdks"


def main() -> int:
    """Create or refresh changed environments; return 1 if one cannot be installed."""
    done = [_install(lock) for lock in sorted((ROOT / "tests" / "sdks").glob("*.txt"))]
    return 0 if all(done) else 1


def _install(lock: Path) -> bool:
    folder = ENVIRONMENTS / lock.stem
    stamp = folder / "installed"
    fingerprint = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return True
    print(f"Setting up {folder.relative_to(ROOT)}")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [*pip, "--require-hashes", "--no-deps", "-r", str(lock)],
    ):
        if subprocess.run(command, check=False).returncode != 0:
            print(f"{folder.relative_to(ROOT)} cannot be installed: tests with it are skipped", file=sys.stderr)
            return False
    stamp.write_text(fingerprint)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
