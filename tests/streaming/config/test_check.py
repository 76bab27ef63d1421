"""Files that a configuration names must exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.config import ConfigError, ConfigErrors, load_config
from streaming.config.check import check_destination, check_files, summary, warnings
from tests.certificates import client_file


def test_every_unreadable_file_is_named(tmp_path: Path) -> None:
    """All sections are checked, including those of collectors."""
    path = tmp_path / "queuewatch.yaml"
    (tmp_path / "token").write_text("x")
    path.write_text(
        f"http: {{ingest: {{enabled: false, token_file: {tmp_path}/token}}}}\n"
        "source: {kafka: {bootstrap_servers: [a:1], topics: [t], ssl_ca_file: missing.pem}}\n"
        "collect: {activemq: {username: me, password_file: also-missing}}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        check_files(load_config(path, {}))
    assert [error.key for error in caught.value.errors] == ["source.kafka.ssl_ca_file", "collect.activemq.password_file"]


def test_files_in_lists_are_checked_too(tmp_path: Path) -> None:
    """`run` refuses to start without those of an Alertmanager."""
    path = tmp_path / "queuewatch.yaml"
    path.write_text(
        "alertmanager: {destinations: [{url: 'http://a:9093'}, {url: 'http://b:9093', ca_file: none.pem, token_file: none}]}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        check_files(load_config(path, {}))
    assert [error.key for error in caught.value.errors] == [
        "alertmanager.destinations[1].token_file",
        "alertmanager.destinations[1].ca_file",
    ]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("collect: {cloudflare: {account_id: a, token_file: TOKEN}}\n", "collect.cloudflare.token_file"),
        ("collect: {activemq: {username: me, password_file: TOKEN}}\n", "collect.activemq.password_file"),
        (
            "alertmanager: {destinations: [{url: 'http://a:9093', token_file: TOKEN}]}\n",
            "alertmanager.destinations[0].token_file",
        ),
    ],
)
def test_an_empty_secret_of_another_section_is_named(tmp_path: Path, text: str, key: str) -> None:
    """Its section would log in with nothing."""
    path, token = tmp_path / "queuewatch.yaml", tmp_path / "token"
    token.write_text("\n")
    path.write_text(text.replace("TOKEN", str(token)))
    with pytest.raises(ConfigErrors) as caught:
        check_files(load_config(path, {}))
    assert [str(error) for error in caught.value.errors] == [
        f"{key}: {token} is empty. Write the secret to it, or remove the key"
    ]


def test_a_key_for_kafka_that_needs_a_password_is_refused(tmp_path: Path) -> None:
    """Neither of the two clients has one, and OpenSSL would ask for it at the terminal."""
    path, connection = tmp_path / "queuewatch.yaml", "{bootstrap_servers: [a:1], topic: t, ssl_certificate_file: FILE}"
    path.write_text(f"signal_log: {{kafka: {connection.replace('FILE', str(client_file(tmp_path)))}}}\n")
    check_files(load_config(path, {}))
    file = client_file(tmp_path, "the password")
    with pytest.raises(ConfigErrors) as caught:
        check_files(load_config(path, {}))
    (error,) = caught.value.errors
    assert (error.key, error.fix) == (
        "signal_log.kafka.ssl_certificate_file",
        "Configure a PEM certificate and its private key without a password",
    )
    assert str(file) in str(error)


@pytest.mark.parametrize("section", ["http.auth", "http.metrics_auth", "http.ingest"])
def test_an_empty_secret_is_named(tmp_path: Path, section: str) -> None:
    """An empty token would mean that no token is needed, which is surely not what was intended."""
    path, token = tmp_path / "queuewatch.yaml", tmp_path / "token"
    token.write_text("\n")
    path.write_text(f"http: {{{section.removeprefix('http.')}: {{token_file: {token}}}}}\n")
    with pytest.raises(ConfigErrors) as caught:
        check_files(load_config(path, {}))
    assert [str(error) for error in caught.value.errors] == [
        f"{section}: {token} is empty. Write the secret to it, or remove the key"
    ]


@pytest.mark.parametrize("section", ["http.auth", "http.metrics_auth", "http.ingest"])
def test_a_secret_that_is_no_text_is_named(tmp_path: Path, section: str) -> None:
    """A binary file, such as an encrypted secret, is named with the section that reads it."""
    path, token = tmp_path / "queuewatch.yaml", tmp_path / "token"
    token.write_bytes(b"\xff\xfe")
    path.write_text(f"http: {{{section.removeprefix('http.')}: {{token_file: {token}}}}}\n")
    with pytest.raises(ConfigErrors) as caught:
        check_files(load_config(path, {}))
    assert [str(error) for error in caught.value.errors] == [
        f"{section}: {token} is not UTF-8 text. Write the secret to it, or remove the key"
    ]


@pytest.mark.parametrize("section", ["http.auth", "http.metrics_auth", "http.ingest"])
@pytest.mark.parametrize("token", ["hush\nhush", "hüsh", "hush\x07"])
@pytest.mark.parametrize("in_file", [True, False])
def test_a_token_that_clients_cannot_send_is_named_but_not_shown(tmp_path: Path, section: str, token: str, in_file: bool) -> None:
    """Nobody would have access, and every answer would be 401."""
    path, file = tmp_path / "queuewatch.yaml", tmp_path / "token"
    file.write_text(f"{token}\n", encoding="utf-8")
    path.write_text(f"http: {{{section.removeprefix('http.')}: {{token_file: {file}}}}}\n" if in_file else "http: {}\n")
    variable = f"QUEUEWATCH_{section.upper().replace('.', '__')}__TOKEN"
    with pytest.raises(ConfigErrors) as caught:
        check_files(load_config(path, {} if in_file else {variable: token}))
    (error,) = caught.value.errors
    assert str(error).startswith(f"{section}: {file if in_file else 'the token'} has characters that cannot be sent")
    assert "sh" not in str(error).replace(str(file), "")


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("kafak://kafka:9092/t", "'kafak' is not a telemetry transport"),
        ("kafka://kafka:9092", "names no broker or no topic"),
        ("spool:", "is not a telemetry destination"),
        ("kafka://kafka:9092/t?sasl=x", "unknown option 'sasl'"),
    ],
)
def test_a_destination_that_collectors_cannot_use_is_an_error(to: str, says: str) -> None:
    """`collect` refuses to start with it, so the check says it first."""
    check_destination(load_config(None, {"QUEUEWATCH_COLLECT__TO": "kafka://kafka:9092/t"}))
    with pytest.raises(ConfigError, match=says) as caught:
        check_destination(load_config(None, {"QUEUEWATCH_COLLECT__TO": to}))
    assert caught.value.key == "collect.to"


def test_the_summary_lists_the_effective_settings() -> None:
    """Source, Spark, address and patterns have one line each."""
    lines = list(summary(load_config(None, {"QUEUEWATCH_SOURCE__SPOOL__FOLDER": "in"})))
    assert lines[0] == "reads files *.{ndjson,json,jsonl,arrow} in in"
    assert any("2 shards" in line for line in lines)
    assert "serves http://127.0.0.1:9400/" in lines
    assert "reads nothing" in next(summary(load_config(None, {})))
    tls = {"QUEUEWATCH_HTTP__TLS__CERT_FILE": "c.pem", "QUEUEWATCH_HTTP__TLS__KEY_FILE": "k.pem"}
    assert "serves https://127.0.0.1:9400/" in list(summary(load_config(None, tls)))


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ("{}", "keeps no signal log: set signal_log.path"),
        ("{signal_log: {path: s.ndjson}}", "logs signals to s.ndjson"),
        (
            "{signal_log: {path: s.ndjson, kafka: {bootstrap_servers: [a:1], topic: signals}}}",
            "logs signals to s.ndjson and Kafka topic signals",
        ),
        ("{}", "keeps no unreadable events: set quarantine.path"),
        ("{quarantine: {path: q.ndjson}}", "keeps unreadable events in q.ndjson"),
        ("{quarantine: {kafka: {bootstrap_servers: [a:1], topic: bad}}}", "keeps unreadable events in Kafka topic bad"),
        (
            "{alertmanager: {destinations: [{url: 'http://me:x@a:9093/am'}, {url: 'http://b:9093'}], min_severity: critical}}",
            "pushes critical signals to Alertmanager at http://a:9093/am, http://b:9093",
        ),
        (
            "{source: {spool: {folder: in}}, http: {ingest: {enabled: true, token_file: t}}}",
            "accepts events at /api/v1/events from senders with a token",
        ),
        (
            "{source: {spool: {folder: in}}, http: {ingest: {enabled: true}}}",
            "accepts events at /api/v1/events from everybody who reaches it",
        ),
    ],
)
def test_the_summary_names_what_is_taken_in_and_given_out(tmp_path: Path, sections: str, line: str) -> None:
    """The runbook sends its readers to the summary for the signal log and the quarantine."""
    path = tmp_path / "queuewatch.yaml"
    path.write_text(sections)
    assert line in list(summary(load_config(path, {})))


def test_the_summary_names_the_limits_of_lists(tmp_path: Path) -> None:
    """The runbook sends its readers to the summary for them."""
    path = tmp_path / "queuewatch.yaml"
    path.write_text("judge: {messages_per_queue: 7, top_k: 3}\n")
    line = "lists up to 7 messages of a kind and names up to 3 groups and consumers per queue"
    assert line in list(summary(load_config(path, {})))


@pytest.mark.parametrize(
    ("host", "token", "warned"),
    [
        ("0.0.0.0", "", True),
        ("::", "", True),
        ("queuewatch.internal", "", True),
        ("0.0.0.0", "token_file: TOKEN", False),
        ("127.0.0.1", "", False),
        ("localhost", "", False),
        ("::1", "", False),
    ],
)
def test_unauthenticated_ingest_is_warned_about(tmp_path: Path, host: str, token: str, warned: bool) -> None:
    """The warning concerns ingest without a token on an address that others can reach."""
    path = tmp_path / "queuewatch.yaml"
    (tmp_path / "token").write_text("secret")
    token_setting = token.replace("TOKEN", str(tmp_path / "token"))
    path.write_text(
        f"http: {{host: '{host}', ingest: {{enabled: true, {token_setting}}}}}\n"
        f"source: {{spool: {{folder: {tmp_path}, after_reading: delete}}}}\n"
    )
    assert ["token_file" in line for line in warnings(load_config(path, {}))] == [True] * warned


@pytest.mark.parametrize(
    ("after_reading", "warned"), [("keep", True), ("delete", False), ("archive, archive_folder: old", False)]
)
def test_a_spool_folder_that_nothing_empties_is_warned_about(tmp_path: Path, after_reading: str, warned: bool) -> None:
    """Senders stop at 1 GiB, which would look like silence months later."""
    path = tmp_path / "queuewatch.yaml"
    path.write_text(f"source: {{spool: {{folder: new, after_reading: {after_reading}}}}}\n")
    said = list(warnings(load_config(path, {})))
    assert [line.startswith("files that were read stay in ") for line in said] == [True] * warned


def test_alerts_that_fire_wrongly_without_a_metric_are_warned_about(tmp_path: Path) -> None:
    """Most alerts stay empty without their metric. Some hold unless a series is there: those would page for nothing."""
    path = tmp_path / "queuewatch.yaml"
    path.write_text(
        "http: {metrics_left_out: [queuewatch_tracked_messages, queuewatch_queue_info, queuewatch_telemetry_basis,"
        " queuewatch_pipeline_last_batch_timestamp_seconds, queuewatch_pipeline_lag_seconds]}\n"
        "alerts: {rules: {CoverageLow: {enabled: false}}}\n"
    )
    said = {line.split()[0]: line for line in warnings(load_config(path, {}))}
    assert said.keys() == {"QueuewatchMessageTooOld", "QueuewatchCollectorSilent", "QueuewatchNotPublishing"}
    assert said["QueuewatchMessageTooOld"] == (
        "QueuewatchMessageTooOld fires wrongly without queuewatch_queue_info: remove it from http.metrics_left_out, "
        "or set alerts.rules.MessageTooOld.enabled to false"
    )
