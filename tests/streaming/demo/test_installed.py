"""The demo's local SQS (moto) is an extra; production does not install it."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sinks.http import PortInUseError
from streaming.cli.demo import introduction
from streaming.cli.errors import CommandError
from streaming.cli.main import app
from streaming.demo.shop import EMAILS, INVOICES, ORDERS, ORDERS_DLQ, PAYMENTS

ROOT = Path(__file__).parents[3]
STAND_IN = {"moto", "flask", "flask-cors", "werkzeug"}


def _locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", (ROOT / name).read_text()))


def test_without_moto_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one line without a traceback."""
    monkeypatch.setitem(sys.modules, "moto", None)
    done = CliRunner().invoke(app, ["demo"])
    assert isinstance(done.exception, CommandError)
    assert ".[demo]" in str(done.exception)


def test_a_port_in_use_is_refused_before_anything_is_printed() -> None:
    """The error names the demo's own option; it has no configuration."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = CliRunner().invoke(app, ["demo", "--port", str(taken.getsockname()[1])])
    assert isinstance(done.exception, PortInUseError)
    assert str(done.exception).endswith("choose another port with --port (0 takes any free one)")
    assert done.output == ""


def test_the_introduction_names_the_limits_that_are_not_the_defaults() -> None:
    """Otherwise a reader would expect these times in production."""
    lines = "\n".join(introduction()).splitlines()
    assert lines[-2].endswith("shorter limits: GroupStuck after 15 s (default: 60 s or more),")
    assert lines[-1] == "SlowConsumer after 15 s (default: 30 s or more)."
    assert max(map(len, lines)) <= 130


def test_the_introduction_names_every_queue_with_something_to_see() -> None:
    """`emails` is the example of a rollout that is not finished."""
    said = "\n".join(introduction())
    assert [queue for queue in (ORDERS, ORDERS_DLQ, PAYMENTS, INVOICES, EMAILS) if queue not in said] == []


def test_production_does_not_install_moto_and_the_demo_shares_its_other_versions() -> None:
    """The lock files show it."""
    production, demo, tools = (_locked(f"requirements{which}.txt") for which in ("", "-demo", "-dev"))
    assert not STAND_IN & production.keys()
    assert demo.keys() >= STAND_IN
    assert production.items() <= demo.items() <= tools.items()
