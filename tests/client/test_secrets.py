"""Secrets never appear in logs, errors or counters."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from queuewatch import open_transport
from queuewatch.sender import BackgroundSender
from queuewatch.transports.base import SendError
from queuewatch.transports.secrets import redact, secret, shown
from tests.client.transports import Broken
from tests.services.process import free_port

SECRET = "s3cr3t-t0ken"


@pytest.mark.parametrize("value", [SECRET, f"{SECRET}\n", f"  {SECRET}\r\n"])
def test_white_space_around_a_secret_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
    """Secret stores and editors add a newline; an HTTP header with one is refused, with the token in the error."""
    monkeypatch.setenv("QUEUEWATCH_TOKEN", value)
    assert secret("QUEUEWATCH_TOKEN") == SECRET
    monkeypatch.delenv("QUEUEWATCH_TOKEN")
    (tmp_path / "token").write_bytes(value.encode())
    monkeypatch.setenv("QUEUEWATCH_TOKEN_FILE", str(tmp_path / "token"))
    assert secret("QUEUEWATCH_TOKEN") == SECRET


@pytest.mark.slow
@pytest.mark.parametrize("value", [f"{SECRET}\nx", f"{SECRET}é", f"{SECRET}\x7f"])
def test_a_token_that_no_header_can_carry_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    """The HTTP library's error would quote it."""
    monkeypatch.setenv("QUEUEWATCH_TOKEN", value)
    sender = BackgroundSender(open_transport(f"http://127.0.0.1:{free_port()}/"), linger_s=0.0)
    with caplog.at_level(logging.DEBUG):
        sender.offer([{"type": "x"}])
        assert not sender.flush(0.5)
        sender.close(0)
    assert "QUEUEWATCH_TOKEN" in (sender.stats().last_error or "")
    assert SECRET not in caplog.text + str(sender.stats())


@pytest.mark.parametrize(
    "to",
    [
        f"kafka://b:9092/t?sasl_plain_password={SECRET}",
        f"kafka://me:{SECRET}@b:9092/t",
        f"kafka://b:9092?x={SECRET}",
        f"http://me:{SECRET}@host/x",
        f"http://?token={SECRET}",
        f"ftp://me:{SECRET}@host/x",
        f"spool:?x={SECRET}",
        f"sqs:q?key={SECRET}",
        f"http://[::1/?token={SECRET}",
        f"http://me:{SECRET}/{SECRET}@host:9400/api",
        f"http://me:{SECRET}@{SECRET}@host:port/api",
        f"http:me:{SECRET}@host/x",
        f"https://me:[{SECRET}@host/x",
        f"http://me:{SECRET}?{SECRET}@host:9400/api",
        f"kafka://me:{SECRET}/{SECRET}@host:9092/topic",
        f"kafka://me:{SECRET}/{SECRET}@host:9092",
        f"kafka://me:1/{SECRET}@host",
        f"kafka://me:{SECRET}?{SECRET}@host:9092/topic",
        f"kafka://b:9092?sasl_plain_password=x@{SECRET}",
        f"kafka//me:{SECRET}@host/t",
        f"{SECRET}@host:9092/t",
        f"me:{SECRET}@host:9092/t",
        f"spool:/x:{SECRET}@host?max_age_s=soon",
    ],
)
def test_an_invalid_destination_is_named_without_its_secret(to: str) -> None:
    """People do put secrets into URLs."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        open_transport(to)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "readable"),
    [
        ("http://user:s3/cret@host:9400/api", "http://***@host:9400/api"),
        ("kafka//user:s3cret@host/t", "kafka//***@host/t"),
        ("http:user:s3cret@host/x", "http:***@host/x"),
        ("user:s3cret@host:9092/t?x=1", "user:***@host:9092/t"),
        ("http://host/a?key=x@y", "http://***"),
        ("spool:/srv/a@b/spool?x=1", "spool:/***@b/spool"),
        ("kafka://a:9092,b:9092/t?client_id=x", "kafka://a:9092,b:9092/t"),
        ("http://[::1/?x=1", "http://[::1/"),
    ],
)
def test_what_an_error_shows_of_a_destination(url: str, readable: str) -> None:
    """It still says which one is wrong."""
    assert shown(url) == readable


@pytest.mark.parametrize("to", [f"http://me:1/{SECRET}@host/x", f"sqs:me:{SECRET}@host", f"http://me:1?{SECRET}@host/x"])
def test_a_password_in_an_accepted_destination_is_not_in_its_name(to: str) -> None:
    """The URL is valid, and means something else than its author thinks."""
    assert SECRET not in open_transport(to).name


def test_a_destination_is_shown_without_its_query() -> None:
    """Neither `stats()` nor warnings show the query."""
    transport = open_transport(f"https://host:9400/api/v1/events?key={SECRET}")
    assert transport.name == "https://host:9400/api/v1/events"


@pytest.mark.parametrize("variable", ["QUEUEWATCH_TOKEN", "QUEUEWATCH_KAFKA_PASSWORD"])
def test_a_secret_in_a_library_error_is_redacted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str
) -> None:
    """Errors of libraries may quote what they were given."""
    monkeypatch.setenv(variable, SECRET)
    assert redact(f"bad options {{'password': '{SECRET}'}}") == "bad options {'password': '***'}"
    broken: Any = Broken(SendError(f"refused {SECRET}", retry=True))
    sender = BackgroundSender(broken, linger_s=0.0)
    sender.offer([{"type": "x"}])
    assert not sender.flush(0.3)
    sender.close(0)
    assert "refused ***" in caplog.text
    assert SECRET not in caplog.text + str(sender.stats())
