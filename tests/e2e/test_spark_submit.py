"""The service as an application of `spark-submit`, which starts Java first and Python as its child."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
import pytest

from streaming.health.liveness import descendants
from streaming.spark.class_archive import options_for
from streaming.spark.runtime import ensure_java
from tests.contract.replaying import ev
from tests.e2e.service import Service, running
from tests.faults.load import into_folder

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

JOB = Path(__file__).parents[2] / "deploy" / "spark" / "queuewatch_job.py"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
CONFIG = {
    "source": {"spool": {"folder": "spool"}},
    # Under spark-submit the master is the command's: this one does not exist.
    "spark": {"checkpoint_dir": "checkpoint", "master": "spark://nowhere.invalid:7077", "conf": {"spark.ui.enabled": "false"}},
    "log": {"format": "json"},
}
# Java writes what Python says to its own standard output.
TO_STDERR = ("sh", "-c", 'exec "$0" "$@" >&2')
# Java's options are the command's, too; Spark's own choice compiles for minutes of processor time what runs for seconds.
JAVA_OPTIONS = " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options_for("")])
GIVEN = ("--master", "local[2]", "--driver-memory", "1g", "--driver-java-options", JAVA_OPTIONS, "--name", "queues")
COMMAND = (*TO_STDERR, str(SUBMIT), *GIVEN, str(JOB))


def sent(service: Service, count: int) -> None:
    """Wait until this many sends are published."""
    service.wait(lambda m: sum(v for k, v in m.items() if k.startswith("queuewatch_messages_sent_total")) == count, 300)


def _command_line(pid: int) -> str:
    """Return the command line of a process, empty if it has ended meanwhile, as short-lived helpers of Java and Spark do."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""


def test_spark_submit_decides_master_and_memory_and_the_checkpoint_carries_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run continues after a SIGTERM to the process that spark-submit started, with every event counted once."""
    ensure_java()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(JOB.parents[2]), os.environ.get("PYTHONPATH")])))
    put = into_folder(tmp_path / "spool")
    put([ev("sent", n, message_id=f"m{n}") for n in range(100)])
    with running(tmp_path, CONFIG, COMMAND) as service:
        sent(service, 100)
        (ready,) = service.said("job_ready")
        assert ready["master"] == "local[2]"
        java = service.process.pid
        assert "-Xmx1g" in _command_line(java)
        assert [pid for pid in descendants(java) if "queuewatch_job.py" in _command_line(pid)]
        service.stop()
    put([ev("sent", 200 + n, message_id=f"n{n}") for n in range(50)])
    with running(tmp_path, CONFIG, COMMAND) as service:
        sent(service, 150)
        service.stop()
