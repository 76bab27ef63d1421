"""Files that a configuration names must be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.config import ConfigErrors, load_config
from streaming.config.check import check_files, summary


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
