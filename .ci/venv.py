"""Create `.venv` from a lock file, or refresh it if the lock file or the Python version has changed.

Usage: python .ci/venv.py requirements-demo.txt [requirements-dev.txt]

The last file named is installed; those before it are contained in it. Needs nothing but Python.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = VENV / "installed.json"
OLDEST = (3, 11)
PROJECTS = ("client", ".")
"""Distributions installed in place, in this order, because the service needs the application library."""


def main(locks: list[str]) -> int:
    """Create or refresh the environment; on failure print the reason and the fix and return 1."""
    if sys.version_info < OLDEST:
        return _fail("queuewatch needs Python 3.11 or newer: install it, then run make PYTHON=python3.11")
    wanted = {name: _fingerprint(name) for name in locks}
    present = _present()
    if all(present.get(name) == fingerprint for name, fingerprint in wanted.items()):
        return 0
    started = time.monotonic()
    python = VENV / "bin" / "python"
    if not _works(python):
        done = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=False)
        if done.returncode != 0:
            return _fail("this Python cannot make a virtual environment: install python3-venv, then try again")
    if not _install([str(python), "-m", "pip", "install"], locks[-1]):
        return 1
    STAMP.write_text(json.dumps(present | wanted, indent=2) + "\n")
    print(f"  ready in {time.monotonic() - started:.0f} s")
    return 0


def _fingerprint(lock: str) -> str:
    """Return a fingerprint of the lock file, the project's package metadata and the Python version."""
    import tomllib  # older Pythons, which lack it, were already rejected

    packages = []
    for folder in PROJECTS:
        settings = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())
        packages += [settings["project"], settings["build-system"], settings["tool"]["setuptools"]]
    digest = hashlib.sha256(json.dumps([sys.version_info[:2], packages]).encode())
    for path in [ROOT / lock, ROOT / "setup.py", *sorted(ROOT.glob("sources/**/*.c"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _present() -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return found if _works(VENV / "bin" / "python") else {}


def _works(python: Path) -> bool:
    """Return whether the environment's Python starts and has the expected version."""
    if not python.exists():
        return False
    ask = [str(python), "-c", "import sys; print(sys.version_info[:2])"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
    return answer == str(tuple(sys.version_info[:2]))


def _install(pip: list[str], lock: str) -> bool:
    """Install the lock, then the two distributions of this project in place."""
    total = len(re.findall(r"^[A-Za-z0-9]\S*==", (ROOT / lock).read_text(), re.MULTILINE))
    print(f"Setting up .venv from {lock}: up to {total} packages, once; about a minute or two")
    # Compiling all files of all packages takes longer than compiling only the imported ones.
    pinned = [*pip, "--no-compile", "--require-hashes", "--no-deps", "-r", lock]
    # One after the other, because an upgrade of one may remove a file that the other has just taken over.
    in_place = ([*pip, "--no-deps", "-e", f"./{folder}"] for folder in PROJECTS)
    return _shown(pinned, total) and all(_shown(command, None) for command in in_place)


def _shown(command: list[str], total: int | None) -> bool:
    """Run pip with a progress counter instead of its output; the output is printed if it fails."""
    words: list[str] = []
    seen = 0
    terminal = sys.stdout.isatty()
    command = [*command, "--disable-pip-version-check", "--progress-bar", "off"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            words.append(line)
            step = re.match(r"(Collecting|Requirement already satisfied:|Building|Installing) ?(.*)", line.strip())
            if step is None or total is None:
                continue
            seen += step[1].startswith(("Collecting", "Requirement"))
            what = step[2].split("==")[0] if seen < total else f"{step[1].lower()} them"
            if terminal:
                print(f"\r\033[K  {seen}/{total} {what[:60]}", end="", flush=True)
            elif seen % 20 == 0 or not step[1].startswith(("Collecting", "Requirement")):
                print(f"  {seen}/{total} {what[:60]}", flush=True)
    if terminal and total is not None:
        print("\r\033[K", end="")
    if process.returncode != 0:
        print("".join(words[-25:]), file=sys.stderr)
        _fail("pip could not install the packages (its words are above): check the network, then try again")
    return process.returncode == 0


def _fail(words: str) -> int:
    print(words, file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
