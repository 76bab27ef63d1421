"""Jars named by a Maven pom, downloaded once into the cache folder."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class JarsUnavailable(RuntimeError):
    """Jars are missing and cannot be fetched; the message names them, the reason and the fix."""

    def __init__(self, what: str, reason: str, fix: str) -> None:
        self.what = what
        self.reason = reason
        self.fix = fix
        super().__init__(f"no jars for {what}: {reason}. {fix}")


def cache_dir() -> Path:
    """Return the folder for everything downloaded or derived: `QUEUEWATCH_CACHE`, else `~/.cache/queuewatch`."""
    configured = os.environ.get("QUEUEWATCH_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "queuewatch"


def cached(pom: Path) -> Path:
    """Return the folder for the jars of `pom`; its name changes when the pom does."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    return cache_dir() / "jars" / f"{pom.stem}-{digest}"


def resolve(pom: Path) -> list[Path]:
    """Return the jars of `pom` and of its runtime dependencies, sorted by name; fetched with Maven if absent.

    With a file of checksums beside the pom (as `sha256sum` prints them), exactly its jars are accepted.

    Any number of processes may call this at once: one fetches, the others wait. A folder in the cache is complete or
    absent. Raises `JarsUnavailable`.
    """
    folder = cached(pom)
    if not folder.is_dir():
        with _lock(folder.with_suffix(".lock")):
            if not folder.is_dir():
                _fetch(pom, folder)
    return sorted(folder.glob("*.jar"))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailable(
            pom.stem,
            f"they are not in {folder.parent} and there is no Maven (mvn) on PATH",
            "Install maven, or copy the jars there from a machine that has it",
        )
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        # Maven writes beside its pom, so it gets a copy.
        copy = shutil.copyfile(pom, Path(scratch, "pom.xml"))
        target = Path(scratch, "jars")
        command = [maven, "-q", "-B", "-f", str(copy), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not any(target.glob("*.jar")):
            words = (done.stdout + done.stderr).strip().splitlines()
            raise JarsUnavailable(
                pom.stem,
                "Maven failed: " + " | ".join(words[:6]),
                "Check that Maven can reach its repository (its settings.xml), then try again",
            )
        if (wrong := _unexpected(target, pom.with_suffix(".sha256"))) is not None:
            raise JarsUnavailable(pom.stem, wrong, "Check the repository that Maven asked (its settings.xml)")
        target.rename(folder)


def _unexpected(folder: Path, checksums: Path) -> str | None:
    """Return what differs from a file of checksums; None when nothing does, or when there is no such file."""
    if not checksums.exists():
        return None
    expected = {name: digest for digest, name in (line.split() for line in checksums.read_text().splitlines())}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.glob("*.jar")}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    return f"what Maven fetched does not agree with {checksums.name}: {', '.join(wrong)}" if wrong else None


def main(poms: list[str]) -> int:
    """Fetch the jars of each pom, one after another, and print them; returns 1 when one cannot be fetched."""
    for pom in map(Path, poms):
        try:
            jars = resolve(pom)
        except JarsUnavailable as error:
            sys.stderr.write(f"{error}\n")
            return 1
        sys.stdout.write(f"{pom.stem}: {len(jars)} jars in {cached(pom)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
