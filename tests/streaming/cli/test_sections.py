"""A collector's section that is missing is said; nothing is looked for on this machine instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.cli.errors import EXIT_USAGE, exit_code
from streaming.cli.main import app


@pytest.mark.parametrize("command", ["collect", "doctor"])
@pytest.mark.parametrize(("kind", "first"), [("activemq", "addresses"), ("cloudflare", "account_id")])
@pytest.mark.parametrize("text", ["http: {port: 0}\n", "collect: {to: 'spool:out'}\n", "collect: {activemq: }\n"])
def test_a_section_that_is_missing_is_said(tmp_path: Path, command: str, kind: str, first: str, text: str) -> None:
    """With the exit code of a mistake in the configuration, and the keys to write."""
    config = tmp_path / "q.yaml"
    config.write_text(text)
    error = CliRunner().invoke(app, [command, kind, "--config", str(config)]).exception
    assert isinstance(error, Exception)
    assert exit_code(error) == EXIT_USAGE
    assert str(error).startswith(f"collect.{kind}: the section is missing. Add it with what to collect from: {first}")
