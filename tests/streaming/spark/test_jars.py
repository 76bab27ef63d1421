"""Jars are fetched once, whole or not at all, however many ask."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.spark import jars

# Stands in for Maven: slow enough that two askers overlap, and it writes down each time it is started.
_MAVEN = """#!/bin/sh
echo started >> "$CALLS"
[ -z "$FAIL" ] || { echo "[ERROR] the repository does not answer"; exit 1; }
for argument do case $argument in -DoutputDirectory=*) target=${argument#*=};; esac done
mkdir "$target"; touch "$target/one.jar"; sleep 0.5; touch "$target/two.jar"
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven on PATH and an empty cache; answers the file that gets one line per start."""
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


def test_two_processes_that_ask_at_once_start_maven_once_and_get_every_jar(maven: Path, pom: Path) -> None:
    command = [sys.executable, "-m", "streaming.spark.jars", str(pom)]
    askers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [asker.communicate(timeout=60)[0] for asker in askers]
    assert [answer.partition(" in ")[0] for answer in answers] == ["thing: 2 jars", "thing: 2 jars"]
    assert maven.read_text().splitlines() == ["started"]


def test_another_pom_is_another_folder(maven: Path, pom: Path) -> None:
    before = jars.resolve(pom)
    pom.write_text("<project><version>2</version></project>")
    after = jars.resolve(pom)
    assert before[0].parent != after[0].parent
    assert len(maven.read_text().splitlines()) == 2


@pytest.mark.usefixtures("maven")
def test_a_failure_leaves_nothing_behind_and_is_tried_again(pom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "yes")
    with pytest.raises(jars.JarsUnavailable, match=r"no jars for thing: Maven failed: .*does not answer"):
        jars.resolve(pom)
    monkeypatch.delenv("FAIL")
    assert [jar.name for jar in jars.resolve(pom)] == ["one.jar", "two.jar"]


def test_without_maven_the_error_says_where_the_jars_belong(pom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("QUEUEWATCH_CACHE", str(tmp_path / "cache"))
    with pytest.raises(jars.JarsUnavailable, match="no Maven") as caught:
        jars.resolve(pom)
    assert str(tmp_path / "cache" / "jars") in caught.value.reason
    assert caught.value.fix.startswith("Install maven")
