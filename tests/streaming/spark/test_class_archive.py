"""Java's class archive is used where it exists, and not where the user's own options are about archives."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.config.service import SparkSection
from streaming.health.liveness import state_of
from streaming.spark import class_archive, runtime
from streaming.spark.session import conf_of
from tests.waiting import until


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the archive would be, in a cache of the test's own."""
    monkeypatch.setenv("QUEUEWATCH_CACHE", str(tmp_path))
    (tmp_path / "java").mkdir()
    return class_archive._path()


def _options() -> str:
    return conf_of(SparkSection(), with_kafka=False, log_level="ERROR")["spark.driver.extraJavaOptions"]


def test_java_starts_with_the_archive_once_there_is_one(archive: Path) -> None:
    assert "SharedArchiveFile" not in _options()
    archive.write_bytes(b"")
    assert f"-XX:SharedArchiveFile={archive} " in _options()


def test_the_archive_may_be_in_a_folder_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark splits the options at spaces: Java took the rest of the path for the program to run, and nothing started."""
    monkeypatch.setenv("QUEUEWATCH_CACHE", str(tmp_path / "Jane Doe's cache"))
    path = class_archive._path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    assert f"-XX:SharedArchiveFile={path}" in shlex.split(_options())


@pytest.mark.parametrize("given", ["-XX:SharedArchiveFile=/own.jsa", "-XX:ArchiveClassesAtExit=/new.jsa"])
def test_the_user_s_own_archive_is_left_alone(archive: Path, given: str) -> None:
    """Java accepts one archive, and writes none while it uses one."""
    archive.write_bytes(b"")
    assert class_archive.options_for(f"-Xlog:gc {given}") == []


def test_an_archive_older_than_java_or_spark_is_made_again(archive: Path) -> None:
    assert not class_archive.is_current()
    archive.write_bytes(b"")
    assert class_archive.is_current()
    assert class_archive.main(["--if-needed"]) == 0
    assert archive.read_bytes() == b"", "a current one stays"
    os.utime(archive, (0, 0))
    assert not class_archive.is_current()


def test_a_run_that_fails_leaves_no_archive(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(class_archive, "_dump_base_archive", _written)
    with pytest.raises(RuntimeError, match="the run for Java's class archive failed"):
        class_archive.make()
    assert [path.name.split("-")[0] for path in archive.parent.iterdir()] == ["java"]


_HANGING = """#!/bin/sh
trap "" TERM
sleep 600 &
echo $! > "{pid}"
mkdir -p checkpoint/commits
touch checkpoint/commits/2
wait
"""


@pytest.mark.timeout(60)
def test_a_run_that_does_not_end_is_killed_with_its_java(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever makes the archive, as a build of the image, does not wait for ever, and nothing is left running."""
    hanging, pid = tmp_path / "hanging", tmp_path / "pid"
    hanging.write_text(_HANGING.format(pid=pid))
    hanging.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(hanging))
    monkeypatch.setattr(class_archive, "_WITHIN_S", 2)
    monkeypatch.setattr(class_archive, "_dump_base_archive", _written)
    with pytest.raises(RuntimeError, match="the run for Java's class archive did not end"):
        class_archive.make()
    assert [path.name.split("-")[0] for path in archive.parent.iterdir()] == ["java"]
    until(lambda: state_of(int(pid.read_text())) in ("?", "Z"), "its child has ended")


def _written(file: Path) -> Path:
    file.touch()
    return file


@pytest.mark.slow
def test_a_java_without_an_archive_of_its_own_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java that comes as a package has none, and without one it would write no archive of Spark's classes either."""
    monkeypatch.setenv("QUEUEWATCH_CACHE", str(tmp_path))
    packaged = runtime._packaged_java()
    assert packaged is not None
    monkeypatch.setenv("JAVA_HOME", str(packaged.parents[1]))
    assert _starts_with(packaged, str(packaged.parents[1] / "lib" / "server" / "classes.jsa")) is False
    assert _starts_with(packaged, str(class_archive._dump_base_archive(tmp_path / "java.jsa"))) is True


def _starts_with(java: Path, archive: str) -> bool:
    """Whether this Java starts if it must not do without the archive."""
    return (
        subprocess.run([java, "-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-version"], capture_output=True).returncode == 0
    )
