"""The service's log: JSON for machines, lines for people, and few lines from noisy libraries."""

from __future__ import annotations

import io
import json
import logging
import socket
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog

from sinks.http import create_app, serve
from sinks.store import SnapshotStore
from streaming.config.logging import set_up_logging
from streaming.config.service import LogSection


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restore logging after each test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    quiet = {name: logging.getLogger(name).level for name in ("kafka", "py4j", "httpx", "uvicorn")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, was in quiet.items():
        logging.getLogger(name).setLevel(was)
    structlog.reset_defaults()


def test_json_has_one_object_per_line_from_both_kinds_of_logger() -> None:
    """Values keep their types; an exception stays within its line."""
    stream = io.StringIO()
    set_up_logging(LogSection(format="json"), stream)
    structlog.get_logger("ours").info("batch_done", batch_id=7)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("theirs").exception("it %s", "failed")
    ours, theirs = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (ours["event"], ours["batch_id"], ours["level"], ours["logger"]) == ("batch_done", 7, "info", "ours")
    assert theirs["event"] == "it failed"
    assert "ValueError: two\nlines" in theirs["exception"]


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_has_no_values_of_variables(form: Literal["console", "json"]) -> None:
    """Requests with their logins are among them."""
    stream = io.StringIO()
    set_up_logging(LogSection(format=form), stream)

    def send(headers: dict[str, str]) -> None:
        raise OSError(f"{len(headers)} header was not sent")

    try:
        send({"Authorization": "-".join(["Bearer", "hush"])})
    except OSError:
        structlog.get_logger("ours").exception("failed")
    assert "OSError: 1 header was not sent" in stream.getvalue()
    assert "Bearer-hush" not in stream.getvalue()


def test_auto_is_json_without_a_terminal() -> None:
    """The stream of the test is not a terminal."""
    stream = io.StringIO()
    set_up_logging(LogSection(), stream)
    structlog.get_logger().warning("x")
    assert json.loads(stream.getvalue())["event"] == "x"


def test_the_level_applies_and_noisy_libraries_are_quiet() -> None:
    """kafka-python logs each connection attempt as a warning."""
    stream = io.StringIO()
    set_up_logging(LogSection(level="info", format="console"), stream)
    structlog.get_logger("ours").debug("hidden")
    logging.getLogger("kafka.net").warning("hidden too")
    structlog.get_logger("ours").info("shown")
    assert "hidden" not in stream.getvalue()
    assert "shown" in stream.getvalue()


def test_wrong_requests_are_not_logged_but_errors_of_the_service_are() -> None:
    """Scanners send requests that are not HTTP, or ask for a WebSocket: anyone who reaches the port could fill the log."""
    stream = io.StringIO()
    set_up_logging(LogSection(format="json"), stream)
    with serve(create_app(SnapshotStore()), port=0) as server:
        upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        for request in (b"no HTTP\r\n\r\n", upgrade):
            with socket.create_connection((server.host, server.port), timeout=5) as client:
                client.sendall(request)
                assert client.recv(8) == b"HTTP/1.1"
    assert stream.getvalue() == ""
    logging.getLogger("uvicorn.error").error("Exception in ASGI application")
    assert "Exception in ASGI application" in stream.getvalue()


def test_a_second_setup_does_not_duplicate_lines() -> None:
    """The last call wins."""
    first, second = io.StringIO(), io.StringIO()
    set_up_logging(LogSection(format="json"), first)
    set_up_logging(LogSection(format="json"), second)
    structlog.get_logger().info("x")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1
