"""Files that a configuration names must be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.config import ConfigErrors, load_config
from streaming.config.check import check_files, summary, warnings


def test_every_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """In every section, those of collectors too."""
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


def test_the_summary_says_what_would_be_done() -> None:
    """One line each: source, Spark, address, patterns."""
    lines = list(summary(load_config(None, {"QUEUEWATCH_SOURCE__SPOOL__FOLDER": "in"})))
    assert lines[0] == "reads files *.{ndjson,json,jsonl,arrow} in in"
    assert any("2 shards" in line for line in lines)
    assert "reads nothing" in next(summary(load_config(None, {})))


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
def test_events_from_anybody_are_warned_of(tmp_path: Path, host: str, token: str, warned: bool) -> None:
    """Ingest without a token on an address others reach."""
    path = tmp_path / "queuewatch.yaml"
    (tmp_path / "token").write_text("secret")
    token_setting = token.replace("TOKEN", str(tmp_path / "token"))
    path.write_text(
        f"http: {{host: '{host}', ingest: {{enabled: true, {token_setting}}}}}\nsource: {{spool: {{folder: {tmp_path}}}}}\n"
    )
    assert ["token_file" in line for line in warnings(load_config(path, {}))] == [True] * warned
