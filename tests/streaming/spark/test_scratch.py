"""Spark's temporary files do not accumulate."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest

from streaming.config.service import SparkSection
from streaming.spark.job import DRAIN_WITHIN_S
from streaming.spark.scratch import scratch_for
from streaming.spark.session import conf_of


def test_files_of_a_killed_process_are_removed_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must use the same checkpoint; another checkpoint's files stay, because its process may be running."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    killed = scratch_for(tmp_path / "a")
    folder = killed.__enter__()
    (folder / "blockmgr-1").mkdir()
    with scratch_for(tmp_path / "b") as other:
        (other / "blockmgr-2").mkdir()
        with scratch_for(tmp_path / "a") as again:
            assert again == folder
            assert list(again.iterdir()) == []
            assert (other / "blockmgr-2").is_dir()
        assert not folder.exists()


@pytest.mark.parametrize("theirs", ["a link", "a folder", "a file"])
def test_what_another_user_put_under_the_name_is_not_used(theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everyone may create names in the folder for temporary files, and what others own cannot be removed from it."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with scratch_for(tmp_path / "a") as guessed:
        pass
    (target := tmp_path / "theirs").mkdir()
    if theirs == "a link":
        guessed.symlink_to(target)
    elif theirs == "a folder":
        guessed.mkdir()
        monkeypatch.setattr("shutil.rmtree", lambda path, **given: rmtree(path, **given) if path != guessed else None)
    else:
        guessed.touch()
    with scratch_for(tmp_path / "a") as own:
        assert own != guessed
        assert not own.is_symlink()
        assert own.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in tmp_path.iterdir()} == {guessed.name, "theirs"}


def test_spark_uses_the_scratch_folder_unless_another_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster manager sets another one through the environment, a user through spark.conf."""
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    conf = conf_of(SparkSection(), with_kafka=False, log_level="ERROR", scratch=tmp_path)
    assert conf["spark.local.dir"] == str(tmp_path)
    own = SparkSection(conf={"spark.local.dir": "/elsewhere"})
    assert conf_of(own, with_kafka=False, log_level="ERROR", scratch=tmp_path)["spark.local.dir"] == "/elsewhere"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/cluster")
    assert "spark.local.dir" not in conf_of(SparkSection(), with_kafka=False, log_level="ERROR", scratch=tmp_path)


def test_the_configured_stop_timeout_is_long_enough() -> None:
    """It covers the running batch, Spark's own stop, and some seconds for the destinations."""
    manifest = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base" / "statefulset.yaml"
    (grace,) = [line for line in manifest.read_text().splitlines() if "terminationGracePeriodSeconds" in line]
    compose = (manifest.parents[2] / "compose.yaml").read_text()
    needed_s = DRAIN_WITHIN_S + 30 + 10
    assert float(grace.split(":")[1]) >= needed_s
    assert "stop_grace_period: 120s" in compose
