"""A missing collector section is reported; no other settings of the machine are used instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from queuewatch.transports.spool import SpoolTransport
from streaming.cli import service
from streaming.cli.collecting import destination_of
from streaming.cli.errors import EXIT_USAGE, exit_code
from streaming.cli.main import app
from streaming.config.model import Config


def test_a_spool_folder_given_as_a_uri_serves_all_that_write_to_it(tmp_path: Path) -> None:
    """It is on this machine, and the job reads it: collectors and ingest said that there was none."""
    folder = tmp_path / "in box?"
    config = Config.model_validate(
        {"source": {"spool": {"folder": folder.as_uri()}}, "http": {"ingest": {"enabled": True}, "port": 0}}
    )
    transport = destination_of(config, None)
    assert isinstance(transport, SpoolTransport)
    assert transport.name == f"spool:{folder}"
    settings = service._ingest(config)
    assert settings is not None
    assert folder.is_dir()


@pytest.mark.parametrize("command", ["collect", "doctor"])
@pytest.mark.parametrize(("kind", "first"), [("activemq", "addresses"), ("cloudflare", "account_id")])
@pytest.mark.parametrize("text", ["http: {port: 0}\n", "collect: {to: 'spool:out'}\n", "collect: {activemq: }\n"])
def test_a_missing_section_is_reported(tmp_path: Path, command: str, kind: str, first: str, text: str) -> None:
    """The exit code is that of a configuration error, and the output has the keys to write."""
    config = tmp_path / "q.yaml"
    config.write_text(text)
    error = CliRunner().invoke(app, [command, kind, "--config", str(config)]).exception
    assert isinstance(error, Exception)
    assert exit_code(error) == EXIT_USAGE
    assert str(error).startswith(f"collect.{kind}: the section is missing. Add it with what to collect from: {first}")
