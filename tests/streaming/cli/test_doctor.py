"""`queuewatch doctor` has the same options and exit codes for every system."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.cli.errors import exit_code
from streaming.cli.main import app


def doctor(*arguments: str | Path) -> tuple[int, str, str]:
    """Return the exit code, the standard output and the error output."""
    done = CliRunner().invoke(app, ["doctor", *map(str, arguments)])
    if isinstance(done.exception, Exception):
        code = exit_code(done.exception)
        assert code is not None, done.exception
        return code, done.stdout, str(done.exception)
    return done.exit_code, done.stdout, " ".join(done.stderr.replace("│", " ").split())


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide any AWS configuration of this machine."""
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")


SINGLE = {"Resources": {"Jobs": {"Type": "AWS::SQS::Queue", "Properties": {"SqsManagedSseEnabled": False}}}}
FIFO = {"FifoQueue": True, "FifoThroughputLimit": "perQueue", "DeduplicationScope": "queue", "QueueName": "dlq.fifo"}


def test_doctor_sqs_examines_code_before_it_is_deployed(tmp_path: Path) -> None:
    """It needs no account; the output is text, or JSON for programs."""
    template = tmp_path / "t.json"
    template.write_text(json.dumps(SINGLE))
    code, text, errors = doctor("sqs", "--template", template)
    assert (code, errors) == (1, "")
    assert "  warning   unencrypted: " in text
    document = json.loads(doctor("sqs", "--template", template, "--json")[1])
    assert document["counts"] == {"critical": 0, "warning": 2, "info": 0}
    assert [(f["queue"], f["rule"]) for f in document["findings"]] == [("Jobs", "no_dead_letter_queue"), ("Jobs", "unencrypted")]
    slow = doctor("sqs", "--template", template, "--processing", "Jobs=31s", "--json")[1]
    assert json.loads(slow)["counts"]["warning"] == 3


@pytest.mark.parametrize(
    ("template", "severity", "code"),
    [
        (SINGLE, "info", 1),
        (SINGLE, "warning", 1),
        (SINGLE, "critical", 0),
        ({"Resources": {"Dlq": {"Type": "AWS::SQS::Queue", "Properties": FIFO}}}, "info", 1),
        ({"Resources": {"Dlq": {"Type": "AWS::SQS::Queue", "Properties": FIFO}}}, "warning", 0),
        ({"Resources": {}}, "info", 0),
    ],
)
def test_doctor_fails_from_the_requested_severity(tmp_path: Path, template: object, severity: str, code: int) -> None:
    """The exit code is 0 or 1, so that a CI pipeline can stop."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps(template))
    assert doctor("sqs", "--template", path, "--fail-on", severity)[0] == code


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["sqs", "--plan", "gone.json"], 2, "--plan gone.json: No such file or directory; give a Terraform plan as JSON"),
        (["sqs", "--template", "gone.json"], 2, "--template gone.json: No such file or directory; give a "),
        (["sqs", "--plan", "/"], 2, "--plan /: Is a directory; give a "),
        (["sqs", "--plan", "/dev/null"], 2, "--plan /dev/null is neither a Terraform plan as JSON (terraform show -json"),
        (["sqs", "--profile", "nobody"], 2, "--profile): The config profile (nobody) could not be found; `aws configure list"),
        (["sqs", "--template", "t", "--processing", "45s"], 2, "is not PATTERN=DURATION"),
        (["sqs", "--template", "t", "--processing", "a=soon"], 2, "is not a duration"),
        (["sqs", "--template", "t", "--profile", "p"], 2, "files are checked instead of an account"),
        (["sqs", "--fail-on", "never"], 2, "'--fail-on': 'never' is not one of"),
        (["rabbitmq"], 2, "No such command 'rabbitmq'"),
        (["activemq"], 2, "--config"),
    ],
)
@pytest.mark.usefixtures("_nowhere")
def test_doctor_explains_a_wrong_command(arguments: list[str], code: int, says: str) -> None:
    """The exit code tells that nothing was examined from findings, and the option is named."""
    found, _, said = doctor(*arguments)
    assert found == code
    assert says in said


@pytest.mark.usefixtures("_nowhere")
def test_doctor_names_the_variable_of_an_unknown_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """No option was given."""
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    code, _, said = doctor("sqs")
    assert code == 2
    assert said.startswith("AWS_PROFILE: The config profile (nobody) could not be found")


def test_doctor_s_help_names_every_system() -> None:
    """Each system has the shared options."""
    assert all(f" {system} " in doctor("--help")[1] for system in ("sqs", "activemq", "cloudflare"))
    for system in ("sqs", "activemq", "cloudflare"):
        shown = doctor(system, "--help")[1]
        assert "--json" in shown
        assert "--fail-on" in shown


def test_doctor_activemq_reports_like_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An unreachable broker is a finding, in JSON too. A warning of the STOMP library would say it twice."""
    logging.getLogger("stomp.py").setLevel(logging.NOTSET)
    config = tmp_path / "q.yaml"
    config.write_text("collect: {activemq: {addresses: ['stomp://127.0.0.1:1']}}\n")
    code, text, _ = doctor("activemq", "--config", config, "--json")
    assert code == 1
    [finding] = json.loads(text)["findings"]
    assert (finding["rule"], finding["severity"]) == ("connection", "critical")
    assert caplog.messages == []


def test_doctor_cloudflare_reports_like_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing token is a finding, next to those of Wrangler files."""
    monkeypatch.delenv("QUEUEWATCH_CLOUDFLARE_TOKEN", raising=False)
    wrangler = tmp_path / "wrangler.toml"
    wrangler.write_text('[[queues.consumers]]\nqueue = "orders"\nmax_retries = 0\n')
    config = tmp_path / "q.yaml"
    config.write_text(f"collect: {{cloudflare: {{account_id: abc, wrangler_files: ['{wrangler}']}}}}\n")
    code, text, _ = doctor("cloudflare", "--config", config, "--json", "--fail-on", "critical")
    assert code == 1
    assert {"not_examined", "no_retries"} <= {finding["rule"] for finding in json.loads(text)["findings"]}
