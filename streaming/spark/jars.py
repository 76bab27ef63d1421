"""Jars named by a Maven pom, copied once into the cache folder and found there afterwards."""

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
    """Jars are missing and cannot be fetched; says which, why, and what to do about it."""

    def __init__(self, what: str, reason: str, fix: str) -> None:
        self.what = what
        self.reason = reason
        self.fix = fix
        super().__init__(f"no jars for {what}: {reason}. {fix}")


def cache_dir() -> Path:
    """The folder for everything downloaded or derived: `QUEUEWATCH_CACHE`, else `~/.cache/queuewatch`."""
    configured = os.environ.get("QUEUEWATCH_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "queuewatch"


def cached(pom: Path) -> Path:
    """The folder that holds, or will hold, the jars of `pom`; its name changes when the pom does."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    return cache_dir() / "jars" / f"{pom.stem}-{digest}"


def resolve(pom: Path) -> list[Path]:
    """The jars of `pom` and of what it depends on at run time, sorted by name; fetched with Maven if absent.

    Any number of processes may ask at once: one fetches, the others wait. A folder in the cache is whole or
    not there. Raises `JarsUnavailable`.
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
        # Maven writes beside the pom it is given, so it gets a copy.
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
        target.rename(folder)


def main(poms: list[str]) -> int:
    """Fetch the jars of each pom, one after another, saying what came; 1 when one cannot be had."""
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
