"""A missing collector section is reported; no other settings of the machine are used instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.cli.errors import EXIT_USAGE, exit_code
from streaming.cli.main import app


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
