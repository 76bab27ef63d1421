"""Jars are fetched once, completely or not at all, however many processes ask."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.spark import jars
from streaming.spark.runtime import CONNECTOR_POM

# A fake Maven, slow enough that two requests overlap; it records each start.
_MAVEN = """#!/bin/sh
echo started >> "$CALLS"
[ -z "$FAIL" ] || { echo "[ERROR] the repository does not answer"; exit 1; }
for argument do case $argument in -DoutputDirectory=*) target=${argument#*=};; esac done
mkdir "$target"; touch "$target/one.jar"; sleep 0.5; touch "$target/two.jar"
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven on PATH and an empty cache; the returned file gets one line per start."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(_MAVEN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("QUEUEWATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.fixture
def pom(tmp_path: Path) -> Path:
    path = tmp_path / "thing.xml"
    path.write_text("<project/>")
    return path


def test_two_concurrent_processes_start_maven_once_and_both_get_every_jar(maven: Path, pom: Path) -> None:
    command = [sys.executable, "-m", "streaming.spark.jars", str(pom)]
    askers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [asker.communicate(timeout=60)[0] for asker in askers]
    assert [answer.partition(" in ")[0] for answer in answers] == ["thing: 2 jars", "thing: 2 jars"]
    assert maven.read_text().splitlines() == ["started"]


@pytest.mark.slow
def test_another_pom_has_another_folder(maven: Path, pom: Path) -> None:
    before = jars.resolve(pom)
    pom.write_text("<project><version>2</version></project>")
    after = jars.resolve(pom)
    assert before[0].parent != after[0].parent
    assert len(maven.read_text().splitlines()) == 2


@pytest.mark.usefixtures("maven")
def test_a_failure_leaves_nothing_behind_and_is_retried(pom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "yes")
    with pytest.raises(jars.JarsUnavailable, match=r"no jars for thing: Maven failed: .*does not answer"):
        jars.resolve(pom)
    monkeypatch.delenv("FAIL")
    assert [jar.name for jar in jars.resolve(pom)] == ["one.jar", "two.jar"]


@pytest.mark.parametrize(
    ("listed", "wrong"),
    [
        pytest.param({"one.jar": b"", "two.jar": b""}, None, id="as expected"),
        pytest.param({"one.jar": b"", "two.jar": b"other"}, "two.jar", id="another content"),
        pytest.param({"one.jar": b""}, "two.jar", id="one too many"),
        pytest.param({"one.jar": b"", "three.jar": b"", "two.jar": b""}, "three.jar", id="one is missing"),
    ],
)
@pytest.mark.usefixtures("maven")
def test_only_jars_with_the_listed_checksums_are_accepted(pom: Path, listed: dict[str, bytes], wrong: str | None) -> None:
    """A jar with another checksum is not kept."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in listed.items())
    pom.with_suffix(".sha256").write_text("".join(lines))
    if wrong is None:
        assert len(jars.resolve(pom)) == 2
        return
    with pytest.raises(jars.JarsUnavailable, match=rf"does not agree with thing\.sha256: {wrong}\."):
        jars.resolve(pom)
    assert not jars.cached(pom).exists()


def test_the_connector_s_checksums_match_the_jars_of_the_tests() -> None:
    """The Kafka tests run with those jars; the list has one line for each dependency in the pom."""
    checksums = CONNECTOR_POM.with_suffix(".sha256")
    assert len(checksums.read_text().splitlines()) == CONNECTOR_POM.read_text().count("<dependency>")
    folder = jars.cached(CONNECTOR_POM)
    if not folder.is_dir():
        pytest.skip("the connector's jars are not on this machine: make jars")
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", str(checksums)], cwd=folder, check=True)


def test_without_maven_the_error_names_the_jar_folder(pom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("QUEUEWATCH_CACHE", str(tmp_path / "cache"))
    with pytest.raises(jars.JarsUnavailable, match="no Maven") as caught:
        jars.resolve(pom)
    assert str(tmp_path / "cache" / "jars") in caught.value.reason
    assert caught.value.fix.startswith("Install maven")
