"""Checkpoints are inspected, verified, exported and resharded without Spark, by the documented commands."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from sinks.append_once import AppendOnceFile
from sinks.clock import wall_ms
from sinks.prometheus import Exposition
from sinks.records import Record
from sinks.store import SnapshotStore
from streaming.checkpoint.manifest import locked
from streaming.checkpoint.reshard import files_read_by_spark
from streaming.checkpoint.shards import shard_keys
from streaming.checkpoint.stored import manifest_of, open_stored
from streaming.cli import checkpoint_commands
from streaming.cli.checkpoint_commands import exported
from streaming.cli.errors import CommandError
from streaming.cli.main import app
from streaming.cli.outlets import OutletMetrics, open_outlets
from streaming.config import load_config
from streaming.config.service import SignalLogSection
from streaming.core.maintenance.placement import out_of_place
from streaming.core.settings import QueueRule, Settings
from streaming.core.state_reports import report_of
from streaming.delivery.outbox import Outbox
from streaming.delivery.sender import deliver_next
from streaming.errors import CheckpointInUse, CheckpointMismatch
from streaming.folder import LocalFolder
from tests.e2e.service import running, values_of
from tests.streaming.checkpoints import FOLDER, NAMES, unpacked
from tests.streaming.spark.live import Live


def queuewatch(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a stored checkpoint."""
    return str(request.param)


@pytest.fixture
def checkpoint(name: str, tmp_path: Path) -> Path:
    """A checkpoint written by an earlier release."""
    return unpacked(name, tmp_path)


def published(name: str) -> dict[str, float]:
    """Return the metrics published by the release that wrote the checkpoint."""
    metrics: dict[str, float] = json.loads((FOLDER / f"{name}.json").read_text())["metrics"]
    return metrics


def test_inspect_describes_the_checkpoint(checkpoint: Path) -> None:
    """The output is readable text."""
    done = queuewatch("state", "inspect", checkpoint)
    assert done.exit_code == 0, done.output
    for words in (
        "formats     ",
        "sources     spool",
        "queue       aws_sqs eu/1 payments.fifo: 12 visible, sent 4412, ",
        ", deleted 4400",
    ):
        assert words in done.output


@pytest.mark.slow
def test_shards_are_shown_by_their_index(tmp_path: Path) -> None:
    """Their keys, such as 0, 1 and 11, are chosen for Spark's hash, and name nothing in the configuration."""
    resharded(unpacked(NAMES[-1], tmp_path), tmp_path / "new")
    lines = queuewatch("state", "inspect", tmp_path / "new").output.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("shard ")] == ["0", "1", "2"]
    key = shard_keys(3)[2]
    assert key != 2
    for state in (tmp_path / "new" / "shards").glob(f"{key}-*"):
        state.write_bytes(b"")
    assert "shard 2: " in queuewatch("state", "verify", tmp_path / "new").output


def test_inspect_names_every_firing_signal(tmp_path: Path) -> None:
    """The most severe come first."""
    lines = queuewatch("state", "inspect", unpacked(NAMES[-1], tmp_path)).output.splitlines()
    assert "firing      17 signals" in lines
    signals = [line for line in lines if line.startswith("signal      ")]
    assert len(signals) == 17
    assert signals[0].startswith("signal      critical ")
    assert any(line.startswith("signal      warning DeadLetterArrived: Message order/") for line in signals)


def test_inspect_refuses_a_memory_that_is_damaged(tmp_path: Path) -> None:
    """It names the command that says more, instead of showing a traceback."""
    resharded(unpacked(NAMES[-1], tmp_path), tmp_path / "new")
    (tmp_path / "new" / "judge" / "seed.memory").write_bytes(zlib.compress(b"{}"))
    error = queuewatch("state", "inspect", tmp_path / "new").exception
    assert isinstance(error, CommandError)
    assert "the judge's memory is damaged" in str(error)
    assert "`queuewatch state verify` says what is intact" in str(error)
    assert "the judge's memory is damaged" in queuewatch("state", "verify", tmp_path / "new").output


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_an_initial_state_that_is_damaged_is_refused_with_a_fix(tmp_path: Path, command: str) -> None:
    """Also where it is JSON, but something else."""
    resharded(unpacked(NAMES[-1], tmp_path), tmp_path / "new")
    (tmp_path / "new" / "seed.json").write_bytes(b"[]")
    error = queuewatch("state", command, tmp_path / "new").exception
    assert isinstance(error, CheckpointMismatch)
    assert "the initial state of checkpoint" in str(error)


def test_a_good_checkpoint_verifies(checkpoint: Path) -> None:
    """A damaged one is reported with exit code 1, but its intact parts can still be read."""
    done = queuewatch("state", "verify", checkpoint)
    assert (done.exit_code, "is intact" in done.output) == (0, True), done.output
    for state in (checkpoint / "shards").glob("*.layer"):
        state.write_bytes(state.read_bytes()[:100])
    done = queuewatch("state", "verify", checkpoint)
    assert done.exit_code == 1


@pytest.mark.parametrize("command", ["inspect", "verify", "export", "export --out", "reshard --shards 3 --out"])
@pytest.mark.parametrize("given", ["missing", "folder", "file"])
def test_anything_but_a_checkpoint_is_refused_and_left_alone(command: str, given: str, tmp_path: Path) -> None:
    """The error says what to give instead. No lock is left there, and no file at `--out`."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    words = command.split()
    out = [tmp_path / "out"] if "--out" in words else []
    done = queuewatch("state", words[0], tmp_path / given, *words[1:], *out)
    assert isinstance(done.exception, CheckpointMismatch), done.exception
    expected = f"{tmp_path / given} is not a queuewatch checkpoint. Give the folder set in spark.checkpoint_dir"
    assert str(done.exception) == expected
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_file_that_export_cannot_write_is_named(tmp_path: Path) -> None:
    """So is one on a full disk, of which the system gives no name."""
    checkpoint = unpacked(NAMES[-1], tmp_path)
    names = (
        (tmp_path, "Is a directory"),
        (tmp_path / "none" / "out", "No such file"),
        (Path("/dev/full"), "No space left on device"),
    )
    for out, problem in names:
        done = queuewatch("state", "export", checkpoint, "--out", out)
        assert isinstance(done.exception, CommandError), done.exception
        assert str(done.exception).startswith(f"{out}: {problem}")
    assert str(done.exception).endswith("; free space, or name another disk")


def test_export_writes_to_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(tmp_path / "state.ndjson")
    done = queuewatch("state", "export", unpacked(NAMES[-1], tmp_path), "--out", tmp_path / "latest")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "state.ndjson").read_text().startswith("{")


def test_an_export_that_fails_leaves_the_file_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a file under its name would be taken for all of the state."""
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "state.ndjson"
    out.write_text("former\n")

    def cut(checkpoint: Path) -> Iterator[str]:
        yield from exported(checkpoint)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_commands, "exported", cut)
    done = queuewatch("state", "export", unpacked(NAMES[-1], tmp_path), "--out", out)
    assert str(done.exception) == f"{out}: No space left on device; free space, or name another disk"
    assert [path.name for path in out.parent.iterdir()] == ["state.ndjson"]
    assert out.read_text() == "former\n"


@pytest.mark.parametrize("command", ["inspect", "verify", "export"])
def test_a_full_standard_output_is_not_blamed_on_the_checkpoint(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of `queuewatch state export FOLDER > FILE` on a full disk."""

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("typer.echo", full)
    done = queuewatch("state", command, unpacked(NAMES[-1], tmp_path))
    assert isinstance(done.exception, CommandError), done.exception
    assert str(done.exception) == "standard output cannot be written: No space left on device"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["inspect", "verify", "export"])
def test_a_closed_standard_output_is_no_success(command: str, tmp_path: Path) -> None:
    """As of `queuewatch state export FOLDER >&-`, or of a program that passes none on."""
    code = "import sys; sys.stdout = None; from streaming.cli.main import main; main()"
    called = [sys.executable, "-c", code, "state", command, str(unpacked(NAMES[-1], tmp_path))]
    done = subprocess.run(called, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, "queuewatch: standard output is closed: send it to a file or a program\n")


def test_inspect_prints_no_control_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue's name is from outside, and the output goes to a terminal."""

    def renamed(*given: Any) -> Any:
        found = report_of(*given)
        queues: Any = {("aws_sqs", "", "a\x1b[2Jb"): next(iter(found.queues.values()))}
        return replace(found, queues=queues)

    monkeypatch.setattr(checkpoint_commands, "report_of", renamed)
    done = queuewatch("state", "inspect", unpacked(NAMES[-1], tmp_path))
    assert done.exit_code == 0, done.output
    assert "aws_sqs - a\\x1b[2Jb: " in done.output


def test_export_writes_every_queue_and_message(checkpoint: Path, tmp_path: Path) -> None:
    """It writes to a file or to standard output."""
    done = queuewatch("state", "export", checkpoint, "--out", tmp_path / "out.ndjson")
    assert done.exit_code == 0, done.output
    lines: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    kinds = Counter(line["kind"] for line in lines)
    assert kinds["queue"] == 4
    live = Counter(line["queue"] for line in lines if line["kind"] == "message" and not line["settled"])
    assert (live["payments.fifo"], live["later"]) == (12, 1)
    (order,) = [line for line in lines if line.get("message_id") == "order/4" and line["queue"] == "orders"]
    assert (order["receive_count"], order["consumer"]) == (2, "worker-1")


def test_a_checkpoint_may_be_named_by_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `spark.checkpoint_dir`, from which an error of `run` takes it into the command to enter."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    checkpoint = unpacked(NAMES[-1], tmp_path).rename(tmp_path / "check point")
    done = queuewatch("state", "verify", checkpoint.as_uri())
    assert done.output == f"{checkpoint}: OK, {done.output.partition('OK, ')[2]}"
    out = tmp_path / "new one"
    done = queuewatch("state", "reshard", checkpoint.as_uri(), "--shards", 3, "--out", out.as_uri(), "--spool-is-empty")
    assert done.exit_code == 0, done.output
    assert (out / "queuewatch.json").exists()
    assert not any((tmp_path / "cwd").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3, 5])
def test_reshard_makes_a_checkpoint_with_the_same_messages(checkpoint: Path, tmp_path: Path, shards: int) -> None:
    """The command verifies the new checkpoint itself; the old one stays."""
    before = sorted(exported(checkpoint))
    if files_read_by_spark(checkpoint):
        refused = queuewatch("state", "reshard", checkpoint, "--shards", shards, "--out", tmp_path / "new")
        assert refused.exit_code == 1
        assert "2 files in it were read" in str(refused.exception)
    done = queuewatch("state", "reshard", checkpoint, "--shards", shards, "--out", tmp_path / "new", "--spool-is-empty")
    assert done.exit_code == 0, done.output
    assert sorted(exported(tmp_path / "new")) == before == sorted(exported(checkpoint))
    assert list(open_stored(tmp_path / "new").files) == shard_keys(shards)
    assert queuewatch("state", "verify", tmp_path / "new").exit_code == 0
    again = queuewatch("state", "reshard", checkpoint, "--shards", shards, "--out", tmp_path / "new", "--spool-is-empty")
    assert isinstance(again.exception, CheckpointMismatch)


def test_export_lists_deleted_messages_however_late_their_events_may_be(tmp_path: Path) -> None:
    """They are known for `judge.lateness_s`, which an export does not know."""
    states = open_stored(unpacked(NAMES[-1], tmp_path)).states().values()
    state = max(states, key=lambda state: sum(segment.rows for segment in state.segments))
    state.high_water += 3_000_000
    compacted = sum(segment.rows for segment in state.segments)
    assert compacted > 1_000
    assert sum('"settled":true' in line for line in checkpoint_commands._messages(state)) >= compacted


ORDERED = "source: {spool: {folder: in}}\nqueues: [{pattern: orders, ordered: true}]\n"


@pytest.mark.parametrize("shards", [2, 3])
def test_reshard_moves_the_messages_of_a_queue_that_becomes_ordered(tmp_path: Path, shards: int) -> None:
    """Its groups, which were spread by message id, are whole afterwards."""
    checkpoint = unpacked(NAMES[-1], tmp_path)
    (tmp_path / "queuewatch.yaml").write_text(ORDERED)
    chosen = ("--shards", shards, "--config", tmp_path / "queuewatch.yaml")
    done = queuewatch("state", "reshard", checkpoint, *chosen, "--out", tmp_path / "new")
    assert done.exit_code == 0, done.exception
    assert sorted(exported(tmp_path / "new")) == sorted(exported(checkpoint))
    states = open_stored(tmp_path / "new").states_by_index()
    assert out_of_place(states, shards, Settings(rules=(QueueRule("orders", ordered=True),))) == set()


def test_reshard_keeps_the_patterns_of_ordered_queues(tmp_path: Path) -> None:
    """Without `--config` they are those that the checkpoint was made with."""
    checkpoint = unpacked(NAMES[-1], tmp_path)
    (tmp_path / "queuewatch.yaml").write_text(ORDERED)
    last = checkpoint
    for name, given in (("a", []), ("b", ["--config", tmp_path / "queuewatch.yaml"]), ("c", [])):
        assert queuewatch("state", "reshard", last, "--shards", 3, "--out", tmp_path / name, *given).exit_code == 0
        last = tmp_path / name
    kept = [json.loads((tmp_path / name / "queuewatch.json").read_text())["queues"] for name in "abc"]
    assert kept == [[], *[[{"pattern": "orders", "ordered": True}]] * 2]


def test_reshard_keeps_what_was_lost(tmp_path: Path) -> None:
    """The counts of lost records and files go on, also when the new checkpoint is resharded before it runs."""
    checkpoint, lost = unpacked(NAMES[-1], tmp_path), {"telemetry/0": 7, "files_gone": 2}
    entry = max((checkpoint / "versions").glob("*.json"))
    entry.write_text(json.dumps({**json.loads(entry.read_text()), "lost": lost}))
    resharded(checkpoint, tmp_path / "new")
    resharded(tmp_path / "new", tmp_path / "newer")
    assert [open_stored(tmp_path / name).lost for name in ("checkpoint", "new", "newer")] == [lost] * 3


def test_reshard_keeps_what_waits_for_a_destination(tmp_path: Path) -> None:
    """It is delivered first, in order, before anything of the new checkpoint; so are the alerts that Alertmanager was sent."""
    checkpoint = unpacked(NAMES[-1], tmp_path)
    last = open_stored(checkpoint).batch_id
    assert last is not None
    outbox = Outbox(LocalFolder(checkpoint / "outbox" / "log"), "log")
    for batch_id, words in ((last - 1, ["a"]), (last, ["b", "c"]), (last + 1, ["not committed: it runs again"])):
        outbox.put(batch_id, [Record(word, word) for word in words])
    LocalFolder(checkpoint / "outbox" / "alertmanager").write("book.json", b"{}")
    done = queuewatch("state", "reshard", checkpoint, "--shards", 3, "--out", tmp_path / "new", "--spool-is-empty")
    assert f"{tmp_path / 'new'}: 3 records still wait for log" in done.output.splitlines()
    resharded(tmp_path / "new", tmp_path / "newer")
    assert LocalFolder(tmp_path / "newer" / "outbox" / "alertmanager").read("book.json") == b"{}"
    assert open_stored(tmp_path / "newer").waiting() == {"log": 3}
    new, log = Outbox(LocalFolder(tmp_path / "newer" / "outbox" / "log"), "log"), AppendOnceFile(tmp_path / "log", "newer")
    new.put(0, [Record("d", "d")])
    while deliver_next(new, log):
        pass
    new.put(0, [Record("e", "e")])  # the batch runs again after a crash
    assert deliver_next(new, log)
    assert (tmp_path / "log").read_text().split() == ["a", "b", "c", "e"]


@pytest.mark.parametrize("again", [False, True], ids=["", "resharded again before it has run"])
def test_no_line_is_in_the_signal_log_twice_after_reshard(tmp_path: Path, again: bool) -> None:
    """A job was killed after the file had the lines of its last batch, and of one more that was not committed."""
    checkpoint, log = unpacked(NAMES[-1], tmp_path), tmp_path / "signals.ndjson"
    last = open_stored(checkpoint).batch_id
    assert last is not None
    before = AppendOnceFile(log, manifest_of(checkpoint).checkpoint.id)
    for batch_id, word in ((last - 3, "a"), (last, "b"), (last + 1, "c")):
        before.append([Record(word, word)], batch_id)
    Outbox(LocalFolder(checkpoint / "outbox" / "signal_log_file"), "log").put(last, [Record("b", "b")])
    new = tmp_path / "new"
    resharded(checkpoint, new)
    if again:
        resharded(new, tmp_path / "newer")
        new = tmp_path / "newer"
    config = load_config(None).model_copy(update={"signal_log": SignalLogSection(path=log)})
    config = config.model_copy(update={"spark": config.spark.model_copy(update={"checkpoint_dir": str(new)})})
    made, metrics = manifest_of(new).checkpoint, OutletMetrics()
    with open_outlets(config, made, lambda name: LocalFolder(new / name), SnapshotStore(), None, metrics):
        (delivery,) = metrics.deliveries
        delivery.put([Record("c", "c"), Record("d", "d")], 0)
    assert log.read_text().split() == ["a", "b", "c", "d"]


def test_a_checkpoint_is_not_resharded_into_itself(tmp_path: Path) -> None:
    """Whoever removes the old folder would remove the new one."""
    checkpoint = unpacked(NAMES[-1], tmp_path)
    done = queuewatch("state", "reshard", checkpoint, "--shards", 3, "--out", checkpoint / "new")
    assert isinstance(done.exception, CheckpointMismatch)
    assert str(done.exception).endswith("and would be removed with it. Name a folder outside of it")
    assert not (checkpoint / "new").exists()


@pytest.mark.parametrize("existed", [False, True])
def test_a_reshard_that_fails_leaves_nothing_behind(existed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt may name the same folder."""
    checkpoint, new = unpacked(NAMES[-1], tmp_path), tmp_path / "new"
    if existed:
        new.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("streaming.checkpoint.reshard.differences", lambda *_, **__: ["orders totals"])
        done = queuewatch("state", "reshard", checkpoint, "--shards", 3, "--out", new)
    assert "differ from those of" in str(done.exception)
    assert list(tmp_path.glob("new/*")) == []
    assert new.exists() == existed
    done = queuewatch("state", "reshard", checkpoint, "--shards", 3, "--out", new)
    assert done.exit_code == 0, done.exception


def test_a_checkpoint_in_use_is_not_resharded(checkpoint: Path, tmp_path: Path) -> None:
    """The running job would keep writing to it."""
    with locked(LocalFolder(checkpoint)):
        done = queuewatch("state", "reshard", checkpoint, "--shards", 3, "--out", tmp_path / "new", "--spool-is-empty")
    assert isinstance(done.exception, CheckpointInUse)


def test_a_resharded_checkpoint_of_every_format_continues(
    spark: SparkSession, name: str, checkpoint: Path, tmp_path: Path
) -> None:
    """On real Spark, from two shards to three, every total and every duration continues from its old value."""
    resharded(checkpoint, tmp_path / "new")
    (tmp_path / "live").mkdir()
    live = Live(spark, tmp_path / "live", shards=3)
    live.checkpoint = tmp_path / "new"
    with live.running() as query:
        snapshot = live.wait(lambda s: s.events_total.get("accepted", 0) > 0, query)
    assert_totals_continue(name, values_of(Exposition(process_metrics=False).render(snapshot, wall_ms()).decode()))
    assert queuewatch("state", "verify", tmp_path / "new").exit_code == 0


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_queuewatch_continues_from_a_resharded_checkpoint(tmp_path: Path) -> None:
    """As a process, from the stored checkpoint of the newest format."""
    resharded(unpacked(NAMES[-1], tmp_path), tmp_path / "new")
    (tmp_path / "inbox").mkdir()
    config = {
        "source": {"spool": {"folder": "inbox"}},
        "spark": {"checkpoint_dir": "new", "shards": 3, "master": "local[2]", "driver_memory": "1g"},
        "log": {"format": "json"},
    }
    with running(tmp_path, config) as service:
        metrics = service.wait(lambda m: m.get('queuewatch_events_total{result="accepted"}', 0) > 0, within_s=400)
        assert service.stop() == 0, service.words()
    assert_totals_continue(NAMES[-1], metrics)
    assert queuewatch("state", "verify", tmp_path / "new").exit_code == 0


def resharded(checkpoint: Path, target: Path) -> None:
    """Write the checkpoint as one with three shards."""
    done = queuewatch("state", "reshard", checkpoint, "--shards", 3, "--out", target, "--spool-is-empty")
    assert done.exit_code == 0, done.output


def assert_totals_continue(name: str, metrics: dict[str, float]) -> None:
    """Compare with what the stored checkpoint's release published."""
    lasting = {series: value for series, value in published(name).items() if "_total{" in series or "_seconds_" in series}
    # The messages that waited when it was stored have passed their retention of four days since.
    lasting = {series: value for series, value in lasting.items() if "messages_expired_total" not in series}
    # A total that is zero and reported by no queue has no series.
    assert {series: metrics.get(series, 0.0) for series in lasting} == lasting
