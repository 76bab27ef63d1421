"""The command line starts quickly, and every error is one clear line with an exit code."""

from __future__ import annotations

import datetime
import gc
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import patch

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sinks.http import HttpSettings, create_app, serve
from sinks.http.access import Access, Credentials
from sinks.store import SnapshotStore
from streaming.cli.errors import EXIT_USAGE, exit_code
from streaming.cli.main import main
from streaming.cli.service import run_service
from streaming.cli.versions import all_versions
from streaming.config import load_config
from streaming.config.check import check_http
from streaming.config.errors import ConfigError, ConfigErrors
from streaming.config.model import Config
from streaming.release import own_version
from tests.sinks.fakes import NOW_MS, shop_snapshot
from tests.streaming.checkpoints import NAMES, unpacked
from tests.streaming.spark.packets import T0, event, ndjson

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def queuewatch(tmp_path: Path) -> Run:
    """Return a function that runs the command in a folder of its own."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "streaming.cli.main", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return the same function for commands that set up no logging: here, they need not import everything again."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        words = list(map(str, arguments))
        monkeypatch.setattr(sys, "argv", ["queuewatch", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capfd.readouterr()
        assert isinstance(ended.value.code, int | None)
        return subprocess.CompletedProcess(words, ended.value.code or 0, printed.out, printed.err)

    return run


def test_run_imports_without_looking_for_garbage_and_frees_later_collections_of_the_modules(
    in_process: Run, tmp_path: Path
) -> None:
    """Java's start is asked for meanwhile. The service itself runs with the collector on."""
    (tmp_path / "queuewatch.yaml").write_text("source: {spool: {folder: spool}}")
    seen: list[tuple[str, bool, bool]] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *_, **__: seen.append((name, gc.isenabled(), gc.get_freeze_count() > 0))

    gc.unfreeze()
    try:
        with (
            patch("streaming.spark.session.start_java_ahead", note("java")),
            patch("streaming.cli.service.serve_until_stopped", note("service")),
        ):
            assert in_process("run", "--config", "queuewatch.yaml").returncode == 0
    finally:
        gc.unfreeze()
    assert seen == [("java", False, False), ("service", True, True)]


def test_the_command_line_starts_without_heavy_imports() -> None:
    """`--help` and completion must not wait for Spark, Arrow or pydantic."""
    heavy = ["pyspark", "pyarrow", "pandas", "numpy", "pydantic", "structlog", "boto3", "kafka", "starlette", "yaml", "httpx"]
    code = f"import sys, streaming.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["sources.wire", "streaming.cli.collecting", "streaming.spark.session"])
def test_pandas_is_imported_only_where_it_is_needed(module: str) -> None:
    """It takes a second: collectors do without, and Java starts before it is imported."""
    code = f"import sys, {module}; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_option_that_is_none_of_its_choices_is_named_in_plain_words(in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a prefix of the library that checks it."""
    monkeypatch.setenv("COLUMNS", "200")
    done = in_process("replay", "--engine", "flink", "f")
    assert done.returncode == EXIT_USAGE
    assert "'--engine': 'flink' is not one of 'local', 'spark'." in done.stderr


def test_help_names_every_command(queuewatch: Run) -> None:
    """It exits with 0."""
    done = queuewatch("--help")
    assert done.returncode == 0
    for command in ("run", "collect", "replay", "check-config", "rules", "doctor", "explain", "version"):
        assert f" {command} " in done.stdout


def test_the_version_is_the_installed_one(queuewatch: Run) -> None:
    """It is an option and, with the versions of the runtime, a command."""
    assert queuewatch("--version").stdout == f"queuewatch {own_version()}\n"
    versions = queuewatch("version").stdout
    assert versions.startswith(f"queuewatch {own_version()}\n")
    assert "pyspark 4.2.0\n" in versions


@pytest.mark.parametrize("compiled", [True, False])
def test_an_installation_without_compiled_code_says_that_it_is_slow(compiled: bool, tmp_path: Path) -> None:
    """Without a C compiler at installation, `version` says so, and the service does when it starts."""
    folder = {"folder": str(tmp_path), "pattern": "*"}
    config = Config.model_validate(
        {"source": {"spool": folder}, "spark": {"checkpoint_dir": str(tmp_path / "c")}, "http": {"port": 0}}
    )
    with (
        patch("sources.wire.scan.is_compiled", return_value=compiled),
        patch("streaming.cli.service.is_compiled", return_value=compiled),
        patch("streaming.cli.service.open_job", side_effect=KeyboardInterrupt),
        structlog.testing.capture_logs() as logs,
    ):
        said = dict(all_versions())["json scan"]
        with pytest.raises(KeyboardInterrupt):
            run_service(config, threading.Event())
    assert (said == "compiled") == compiled
    assert [line["log_level"] for line in logs if line["event"] == "slow_decoding"] == ([] if compiled else ["warning"])


@pytest.mark.parametrize(
    "arguments", [["no-such-command"], ["run"], ["replay", "--every"], ["run", "--config", "x", "--port", "99999"]]
)
def test_a_wrong_command_line_exits_with_2(in_process: Run, arguments: list[str]) -> None:
    """The error is printed without a traceback."""
    done = in_process(*arguments)
    assert done.returncode == 2
    assert "Error" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_valid_configuration_is_summarised(in_process: Run, tmp_path: Path) -> None:
    """The summary is on standard output."""
    (tmp_path / "q.yaml").write_text("source: {spool: {folder: in}}\n")
    done = in_process("check-config", "q.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("q.yaml: OK\n  reads files")


@pytest.mark.parametrize(
    "command", [["check-config"], ["run", "--config"], ["collect", "sqs", "--config"], ["rules", "--out", "o", "-c"]]
)
def test_every_configuration_error_is_one_line_and_exit_2(in_process: Run, tmp_path: Path, command: list[str]) -> None:
    """This holds for every command."""
    (tmp_path / "q.yaml").write_text("sprak: {}\nhttp:\n  prt: 1\n")
    done = in_process(*command, "q.yaml")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "queuewatch: q.yaml:1: sprak: unknown key. Did you mean `spark`?",
        "queuewatch: q.yaml:3: http.prt: unknown key. Did you mean `port`?",
    ]


def test_a_missing_configuration_file_is_named(in_process: Run) -> None:
    """The exit code is 2."""
    done = in_process("check-config", "gone.yaml")
    assert done.returncode == 2
    assert done.stderr == "queuewatch: gone.yaml does not exist. Check the path of the configuration file\n"


@pytest.mark.slow
def test_a_missing_source_is_reported_before_anything_starts(queuewatch: Run, tmp_path: Path) -> None:
    """`run` without a source is a configuration error."""
    (tmp_path / "q.yaml").write_text("http: {port: 0}\n")
    done = queuewatch("run", "--config", "q.yaml")
    assert done.returncode == 2
    assert done.stderr.endswith("source: there is nothing to read: no source is configured. Add source.kafka or source.spool\n")


@pytest.mark.slow
def test_a_command_runs_without_standard_error(tmp_path: Path) -> None:
    """A supervisor may close it: nothing can be logged, but everything else works, and an error has its exit code."""
    (tmp_path / "q.yaml").write_text("source: {spool: {folder: spool}}\n")
    code = (
        "import sys; from unittest.mock import patch; from streaming.cli.main import main\n"
        "with patch('streaming.cli.service.run_service', lambda *_: print('runs')),"
        " patch('streaming.spark.session.start_java_ahead'): main()"
    )
    for arguments, printed, exits in ((["run", "-c", "q.yaml"], "runs\n", 0), (["run", "-c", "gone.yaml"], "", EXIT_USAGE)):
        command = ["sh", "-c", '"$@" 2>&-', "sh", sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (exits, printed)


@pytest.mark.parametrize("open_to_all", [False, True])
def test_an_empty_ingest_token_does_not_start_an_open_service(tmp_path: Path, open_to_all: bool) -> None:
    """A token file that was never filled ends the start, even where `allow_without_token` permits no token at all."""
    token = tmp_path / "token"
    token.write_text("\n")
    ingest = {"enabled": True, "token_file": str(token), "allow_without_token": open_to_all}
    folder = {"folder": str(tmp_path), "pattern": "*"}
    config = Config.model_validate({"source": {"spool": folder}, "http": {"port": 0, "ingest": ingest}})
    with pytest.raises(ConfigError) as caught:
        run_service(config, threading.Event())
    assert exit_code(caught.value) == EXIT_USAGE
    assert str(caught.value) == f"http.ingest: {token} is empty. Write the secret to it, or remove the key"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "password: No such file or directory. Create the file, or configure another one"),
        (b"", "password is empty. Write the secret to it, or remove the key"),
        (b"\xff", "password is not UTF-8 text. Write the secret to it, or remove the key"),
    ],
)
def test_an_unusable_password_for_kafka_is_refused_by_run_and_by_collectors(
    in_process: Run, tmp_path: Path, content: bytes | None, says: str
) -> None:
    """`run` said that no broker answers, and collectors, which send there by default, ended with a traceback."""
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    (tmp_path / "q.yaml").write_text(
        "http: {port: 0}\nsource: {kafka: {bootstrap_servers: ['127.0.0.1:1'], topics: [t], security_protocol: SASL_SSL, "
        f"sasl_mechanism: PLAIN, sasl_username: u, sasl_password_file: '{tmp_path}/password'}}}}\n"
    )
    message = f"source.kafka.sasl_password_file: {tmp_path}/{says}"
    done = in_process("collect", "sqs", "--config", "q.yaml")
    assert (done.returncode, done.stderr) == (EXIT_USAGE, f"queuewatch: {message}\n")
    with pytest.raises(ConfigErrors, match=re.escape(message)):
        run_service(load_config(tmp_path / "q.yaml", {}), threading.Event())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("\n", "token is empty. Write the secret to it, or remove the key", id="empty"),
        pytest.param(None, "token: No such file or directory. Create the file, or configure another one", id="missing"),
        pytest.param(
            "hush\nhush",
            "token has characters that cannot be sent in a header: a token is one line of printable ASCII. "
            "Write the secret to it, or remove the key",
            id="two lines",
        ),
    ],
)
def test_an_unusable_token_of_an_alertmanager_is_refused_by_run_and_by_the_check(
    in_process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, says: str
) -> None:
    """The service would log in with nothing, and no alert would arrive."""
    if content is not None:
        (tmp_path / "token").write_text(content)
    (tmp_path / "q.yaml").write_text(
        "http: {port: 0}\nsource: {spool: {folder: in}}\n"
        "alertmanager: {destinations: [{url: 'http://127.0.0.1:1', token_file: token}]}\n"
    )
    message = f"alertmanager.destinations[0].token_file: {says}"
    done = in_process("check-config", "q.yaml")
    assert (done.returncode, done.stderr) == (EXIT_USAGE, f"queuewatch: {message}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigErrors) as caught:
        run_service(load_config(tmp_path / "q.yaml", {}), threading.Event())
    assert exit_code(caught.value) == EXIT_USAGE
    assert [str(error) for error in caught.value.errors] == [message]


@pytest.mark.parametrize(
    ("http", "says"),
    [
        pytest.param(
            "{host: 0.0.0.0, port: 0, ingest: {enabled: true}}",
            "http.ingest: anyone who can reach 0.0.0.0:0 could send events. Set http.ingest.token_file",
            id="ingest without a token",
        ),
        pytest.param(
            "{port: 0, tls: {cert_file: cert.pem, key_file: key.pem}}",
            "http.tls: cert.pem and key.pem cannot be used (",
            id="files that are no certificate",
        ),
    ],
)
def test_the_check_refuses_what_run_refuses(
    in_process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, http: str, says: str
) -> None:
    """Both exit with 2."""
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("no PEM\n")
    (tmp_path / "q.yaml").write_text(f"http: {http}\nsource: {{spool: {{folder: in}}}}\n")
    done = in_process("check-config", "q.yaml")
    assert (done.returncode, done.stderr.startswith(f"queuewatch: {says}")) == (EXIT_USAGE, True), done.stderr
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        run_service(load_config(tmp_path / "q.yaml", {}), threading.Event())
    assert str(caught.value).startswith(says)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(tmp_path: Path) -> None:
    """OpenSSL would ask on the terminal, and a service has none."""
    key = ec.generate_private_key(ec.SECP256R1())
    locked = serialization.BestAvailableEncryption(b"word")
    file = tmp_path / "key.pem"
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "queuewatch test")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    certificate = tmp_path / "cert.pem"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    config = Config.model_validate({"http": {"tls": {"cert_file": str(certificate), "key_file": str(file)}}})
    with pytest.raises(ConfigError, match=r"its private key without a password"):
        check_http(config)
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    check_http(config)


@pytest.mark.slow
def test_a_port_in_use_is_reported_before_spark_starts(queuewatch: Run, tmp_path: Path) -> None:
    """The error names the option to change."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "q.yaml").write_text(f"source: {{spool: {{folder: in}}}}\nhttp: {{port: {port}}}\n")
        done = queuewatch("run", "--config", "q.yaml")
    assert done.returncode == 1
    assert done.stderr.startswith(f"queuewatch: port {port} on 127.0.0.1 is in use")
    assert "--port" in done.stderr


@pytest.mark.slow
def test_an_unreachable_broker_is_named(queuewatch: Run, tmp_path: Path) -> None:
    """The error comes before Spark starts and names the keys to check."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "q.yaml").write_text(
        f"source: {{kafka: {{bootstrap_servers: ['127.0.0.1:{port}'], topics: [t]}}}}\nhttp: {{port: 0}}\n"
    )
    done = queuewatch("run", "--config", "q.yaml")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"queuewatch: no Kafka broker answers at 127.0.0.1:{port}")
    assert "source.kafka.bootstrap_servers" in last
    assert not (tmp_path / "queuewatch-data" / "checkpoint" / "queuewatch.json").exists()


@pytest.mark.slow
def test_a_changed_shard_count_is_refused_before_spark_starts(queuewatch: Run, tmp_path: Path) -> None:
    """The error names both fixes."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "queuewatch.json").write_text(json.dumps({"layout": 1, "id": "x", "shards": 2, "sources": ["spool"]}))
    (tmp_path / "q.yaml").write_text(
        "spark: {shards: 3, checkpoint_dir: checkpoint}\nsource: {spool: {folder: in}}\nhttp: {port: 0}\n"
    )
    done = queuewatch("run", "--config", "q.yaml")
    assert done.returncode == 1
    assert "Set spark.shards back to 2" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_queue_that_becomes_ordered_is_refused_before_spark_starts(queuewatch: Run, tmp_path: Path) -> None:
    """The error names both fixes; the command in it makes a checkpoint that fits."""
    checkpoint = unpacked(NAMES[-1], tmp_path)
    manifest = json.loads((checkpoint / "queuewatch.json").read_text())
    (checkpoint / "queuewatch.json").write_text(json.dumps(manifest | {"queues": []}))
    given = "http: {port: 0}\nsource: {spool: {folder: in}}\nqueues: [{pattern: orders, ordered: true}]\n"
    (tmp_path / "q.yaml").write_text(given + f"spark: {{shards: 2, checkpoint_dir: {checkpoint}}}\n")
    done = queuewatch("run", "--config", "q.yaml")
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, "Set `ordered` under `queues` back" in last) == (1, True), last
    remedy = last[last.index("state reshard") : last.index(", then set")].replace("FILE", "q.yaml").split()
    assert queuewatch(*remedy).returncode == 0
    kept = json.loads((tmp_path / "NEW" / "queuewatch.json").read_text())
    assert kept["queues"] == [{"pattern": "orders", "ordered": True}]


@pytest.mark.slow
def test_an_unknown_collector_kind_gets_a_suggestion(queuewatch: Run, tmp_path: Path) -> None:
    """The exit code is 2, for an error in the command line."""
    (tmp_path / "q.yaml").write_text("collect: {to: 'spool:out'}\n")
    done = queuewatch("collect", "sqss", "--config", "q.yaml")
    assert done.returncode == 2
    assert "there is no collector 'sqss' (did you mean 'sqs'?). See `queuewatch collect --help`" in done.stderr
    done = queuewatch("collect", "rabbit", "--config", "q.yaml")
    assert "a collector of another package is known where that package is installed" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("sqs", "no AWS region: set AWS_REGION in the environment, or collect.sqs.regions"),
        ("sqs-telemetry", "collect.sqs.telemetry.queue is not set"),
    ],
)
def test_a_collector_that_refuses_its_configuration_exits_with_2(
    queuewatch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, says: str
) -> None:
    """The documented systemd unit does not start it again then: nothing changes before somebody edits the configuration."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    (tmp_path / "q.yaml").write_text("collect: {to: 'spool:out', sqs: {}}\n")
    done = queuewatch("collect", kind, "--config", "q.yaml")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"queuewatch: {says}")


@pytest.mark.slow
def test_a_collector_needs_a_destination(queuewatch: Run, tmp_path: Path) -> None:
    """It fails if neither collect.to nor a source gives one, or if the URL is wrong."""
    (tmp_path / "q.yaml").write_text("collect: {sqs: {}}\n")
    done = queuewatch("collect", "sqs", "--config", "q.yaml")
    assert done.returncode == 2
    assert "collect.to: no destination for events is configured" in done.stderr
    done = queuewatch("collect", "sqs", "--config", "q.yaml", "--to", "carrier-pigeon:x")
    assert done.returncode == 2
    assert "carrier-pigeon" in done.stderr


@pytest.mark.slow
def test_a_recording_is_replayed_to_standard_output(queuewatch: Run, tmp_path: Path) -> None:
    """NDJSON goes to standard output, unreadable events to standard error; `--strict` turns these into exit 2."""
    events = [event("received", "bad", T0, sent_at=T0, receive_count=3, invisible_until=T0 + 1000)]
    (tmp_path / "events.ndjson").write_bytes(ndjson(*events) + b"nonsense\n")
    done = queuewatch("replay", "events.ndjson", "--every", "30s")
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["signal"] for line in lines if line["kind"] == "signal"] == ["PoisonMessage"]
    assert done.stderr.startswith("events.ndjson:2: ")
    assert queuewatch("replay", "events.ndjson", "--strict").returncode == 2
    assert queuewatch("replay", "gone.ndjson").returncode == 2


def test_thresholds_of_a_configuration_apply_to_a_replay(in_process: Run, tmp_path: Path) -> None:
    """Users can try thresholds on a recording."""
    events = [event("received", "bad", T0, sent_at=T0, receive_count=3, invisible_until=T0 + 1000)]
    (tmp_path / "events.ndjson").write_bytes(ndjson(*events))
    (tmp_path / "q.yaml").write_text("queues: [{pattern: 'ord*', thresholds: {poison_receives: 9}}]\n")
    done = in_process("replay", "events.ndjson", "--config", "q.yaml")
    assert '"signal"' not in done.stdout


@pytest.mark.simulation
def test_metrics_of_a_replay_are_two_weeks_apart_if_the_configuration_says_so(in_process: Run, tmp_path: Path) -> None:
    """`replay.every_s` may be any number of seconds."""
    day = 86_400_000
    events = [event("received", f"m{day * n}", T0 + day * n, receive_count=1) for n in (0, 20)]
    (tmp_path / "events.ndjson").write_bytes(ndjson(*events))
    (tmp_path / "q.yaml").write_text("replay: {every_s: 1209600}\n")
    done = in_process("replay", "events.ndjson", "--config", "q.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    shown = {line["at"] for line in map(json.loads, done.stdout.splitlines()) if line["kind"] == "metric"}
    assert shown == {T0 + 14 * day, T0 + 20 * day}


def test_rules_are_written_to_the_given_folder(in_process: Run, tmp_path: Path) -> None:
    """Every file is listed; an impossible folder is refused."""
    done = in_process("rules", "--out", "generated")
    assert done.returncode == 0
    named = [Path(line) for line in done.stdout.splitlines()]
    assert named
    assert all((tmp_path / path).is_file() for path in named)
    (tmp_path / "file").write_text("x")
    done = in_process("rules", "--out", "file")
    assert done.returncode == 1
    assert "--out" in done.stderr


class _Answers(BaseHTTPRequestHandler):
    """Answers requests like the service."""

    def do_GET(self) -> None:
        """Answer for one known queue."""
        known = self.path == "/api/v1/explain/orders%2Feu"
        self.send_response(200 if known else 404)
        self.end_headers()
        kind = "text" if "text/plain" in self.headers["Accept"] else "json"
        self.wfile.write(f"{kind}: {'because' if known else 'nothing is called so'}\n".encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    """The address of a running fake service."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_explain_asks_the_service(in_process: Run, service: str) -> None:
    """The output is text or JSON and names are escaped; the exit code is 1 for an unknown name."""
    assert in_process("explain", "orders/eu", "--url", service).stdout == "text: because\n"
    assert in_process("explain", "orders/eu", "--url", service, "--json").stdout == "json: because\n"
    for unknown in ("nobody", "caf\udce9"):  # the second is an argument in Latin-1
        done = in_process("explain", unknown, "--url", service)
        assert (done.returncode, done.stdout) == (1, "text: nothing is called so\n")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_explain_does_not_take_another_page_for_an_explanation(in_process: Run, form: list[str]) -> None:
    """Neither a 404 of another server or of a wrong path of this one, nor an empty name."""
    with serve(create_app(SnapshotStore()), port=0) as server:
        done = in_process("explain", "orders", "--url", f"{server.url}/queuewatch", *form)
        assert (done.returncode, done.stdout) == (1, "")
        assert "is this the address of queuewatch?" in done.stderr
        done = in_process("explain", "", "--url", server.url, *form)
        assert (done.returncode, done.stdout) == (1, "")
        assert "give the name of a queue" in done.stderr


def test_explain_over_https_to_a_service_without_tls_says_what_to_change(in_process: Run) -> None:
    """The service is up: "start it" would send the reader the wrong way."""
    with serve(create_app(SnapshotStore(), HttpSettings()), host="127.0.0.1", port=0) as server:
        done = in_process("explain", "orders", "--url", server.url.replace("http:", "https:"))
    assert done.returncode == 1
    assert "does not speak TLS: use http:// instead of https://" in done.stderr
    assert "start it" not in done.stderr


def test_explain_reports_that_no_service_answers(in_process: Run) -> None:
    """The error says how to give another address."""
    done = in_process("explain", "orders", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("queuewatch: no queuewatch answers at http://127.0.0.1:1")
    assert "--url" in done.stderr


def test_explain_says_that_the_service_is_starting(in_process: Run) -> None:
    """The address is right, so the error does not ask whether it is."""
    with serve(create_app(SnapshotStore()), port=0) as server:
        done = in_process("explain", "orders", "--url", server.url)
    assert done.returncode == 1
    assert "has published no batch yet" in done.stderr
    assert "is this the address" not in done.stderr


@pytest.fixture
def guarded() -> Iterator[str]:
    """The address of a real service that requires a token."""
    settings = HttpSettings(clock_ms=lambda: NOW_MS, access=Access(page=Credentials(token="s3cret")))
    store = SnapshotStore()
    store.publish(shop_snapshot())
    with serve(create_app(store, settings), port=0) as server:
        yield server.url


@pytest.mark.parametrize("given", ["--token-file", "QUEUEWATCH_TOKEN_FILE", "QUEUEWATCH_TOKEN"])
def test_explain_sends_the_token_of_the_service(
    in_process: Run, guarded: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from a file or the environment, never from the command line, which other users of the host can read."""
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    option = [given, file] if given.startswith("--") else []
    if not option:
        monkeypatch.setenv(given, str(file) if given.endswith("FILE") else "s3cret")
    done = in_process("explain", "orders", "--url", guarded, *option)
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders" in done.stdout


def test_explain_says_how_to_give_a_token(in_process: Run, guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service refuses without it or with another one, and a file that cannot be read is named."""
    monkeypatch.delenv("QUEUEWATCH_TOKEN", raising=False)
    done = in_process("explain", "orders", "--url", guarded)
    assert (done.returncode, done.stdout) == (1, "")
    assert "requires credentials: give the token of http.auth with --token-file" in done.stderr
    monkeypatch.setenv("QUEUEWATCH_TOKEN", "wrong")
    done = in_process("explain", "orders", "--url", guarded)
    assert done.returncode == 1
    assert "rejected the token: give the token of http.auth" in done.stderr
    assert "wrong" not in done.stderr
    done = in_process("explain", "orders", "--url", guarded, "--token-file", tmp_path / "absent")
    assert done.returncode == 1
    assert f"cannot read the token file {tmp_path / 'absent'}: No such file" in done.stderr


def test_explain_logs_in_with_the_user_and_password_of_its_url(in_process: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose http.auth has no token can be asked too, and its refusal says how."""
    monkeypatch.delenv("QUEUEWATCH_TOKEN", raising=False)
    page = Credentials(username="kim", password="s3cret")
    store = SnapshotStore()
    store.publish(shop_snapshot())
    with serve(create_app(store, HttpSettings(clock_ms=lambda: NOW_MS, access=Access(page=page))), port=0) as server:
        refused = in_process("explain", "orders", "--url", server.url)
        monkeypatch.setenv("QUEUEWATCH_URL", server.url.replace("//", "//kim:s3cret@"))
        done = in_process("explain", "orders")
    assert "or its user and password in QUEUEWATCH_URL, as in http://USER:PASSWORD@HOST:9400" in refused.stderr
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("token", ["hush\nhush", "hüsh"])
def test_explain_does_not_print_a_token_that_cannot_be_sent(
    in_process: Run, guarded: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The HTTP client's own error quotes it."""
    monkeypatch.setenv("QUEUEWATCH_TOKEN", token)
    done = in_process("explain", "orders", "--url", guarded)
    assert done.returncode == 1
    assert "the token has characters that cannot be sent in a header" in done.stderr
    assert "sh" not in done.stderr.removeprefix("queuewatch: the token has characters that cannot be sent in a header")


def test_explain_does_not_print_a_password_of_its_url(in_process: Run) -> None:
    """Errors show the address without user and password."""
    done = in_process("explain", "orders", "--url", "http://me:hunter2@127.0.0.1:1")
    assert "hunter2" not in done.stderr
    assert "http://127.0.0.1:1" in done.stderr
