"""The runbook's checks of dead letters on ActiveMQ and Cloudflare, run by bash: each asks the queue it is about."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from alerts.catalogue import BY_NAME, CATALOGUE
from alerts.checks import activemq, cloudflare
from tests.services.process import ServiceUnavailable
from tests.services.provider import Services
from tests.sources.cloudflare.api_stub import ACCOUNT, TOKEN, Stub, serving

SHARED, OWN = "ActiveMQ.DLQ", "DLQ.orders"


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    """The programs that the commands call."""
    if missing := [name for name in ("bash", "curl", "jq") if shutil.which(name) is None]:
        Services.give_up(ServiceUnavailable(f"not on PATH: {', '.join(missing)}"))


def _shell(script: str, queue: str) -> str:
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "QUEUE": queue},
        input=f"{TOKEN}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@contextmanager
def _jolokia(queues: Mapping[str, bool]) -> Iterator[tuple[str, list[str]]]:
    """Run a management interface with these queues, each with whether the broker marks it as a dead-letter queue.

    Yields its address, and the queues asked for.
    """
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, bean, last = unquote(self.path).removeprefix("/").split("/", 2)
            name = bean.partition("destinationName=")[2].partition(",")[0]
            asked.append(name)
            # Jolokia answers for a queue that does not exist with HTTP 200 and without a value.
            value = {"DLQ": str(queues.get(name)).lower()}.get(last, "[]")
            body = f'{{"status": 200, "value": {value}}}' if name in queues else '{"status": 404, "error": "not found"}'
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def _amq(url: str, netrc: Path) -> str:
    netrc.touch()
    return activemq.PREPARE.replace("http://localhost:8161/api/jolokia", url).replace('"$HOME/.netrc"', f"'{netrc}'")


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("queues", "queue", "dlq", "why"),
    [
        ({"orders": False, OWN: True}, "orders", OWN, "the queue has a dead-letter queue of its own"),
        ({"orders": False, SHARED: True}, "orders", SHARED, "the broker's default: all queues share one"),
        ({"orders": False, OWN: True}, OWN, OWN, "the alert is about the dead-letter queue"),
        ({"orders": False, SHARED: False}, SHARED, SHARED, "the shared one, not marked since the broker's restart"),
        ({"orders": False, "orders.DLQ": False}, "orders.DLQ", "orders.DLQ", "a suffix instead of a prefix"),
        ({"orders": False, "failed.orders": True}, "failed.orders", "failed.orders", "another name, marked by the broker"),
    ],
    ids=lambda v: v if isinstance(v, str) and " " in v else "",
)
def test_activemq_finds_the_dead_letter_queue(tmp_path: Path, queues: Mapping[str, bool], queue: str, dlq: str, why: str) -> None:
    """DLQ is the alert's queue if that is a dead-letter queue, otherwise the one to which the broker moves its messages."""
    with _jolokia(queues) as (url, _):
        out = _shell(f'{_amq(url, tmp_path / "netrc")}\necho "$QUEUE $DLQ $Q"', queue)
    broker = "org.apache.activemq:type=Broker,brokerName=localhost"
    assert out == f"{queue} {dlq} {broker},destinationType=Queue,destinationName={queue}", why


@pytest.mark.simulation
def test_activemq_keeps_a_dead_letter_queue_that_is_given(tmp_path: Path) -> None:
    """After an alert about a dead-letter queue with any name, the checks of its source queue still know it."""
    with _jolokia({"orders": False, "lost": False}) as (url, _):
        prepare = _amq(url, tmp_path / "netrc")
        assert _shell(f'{prepare}\nuse_queue lost lost\nuse_queue orders "$DLQ"\necho "$QUEUE $DLQ"', "lost") == "orders lost"


@pytest.mark.simulation
@pytest.mark.parametrize(("queues", "queue"), [({"orders": False, OWN: True}, OWN), ({"orders": False, SHARED: False}, SHARED)])
def test_activemq_checks_ask_the_dead_letter_queue_and_then_its_source(
    tmp_path: Path, queues: Mapping[str, bool], queue: str
) -> None:
    """The checks of DeadLetterArrived before `use_queue` read the alert's queue, those after it the source queue."""
    checks = BY_NAME["DeadLetterArrived"].checks["activemq"]
    switch = next(i for i, check in enumerate(checks, 1) if "`use_queue NAME" in check.look_for)
    commands = [check.command for check in checks]
    before, after = ([c for c in some if c.startswith("amq")] for some in (commands[:switch], commands[switch:]))
    assert len(before) == 2
    assert len(after) == 2
    with _jolokia(queues) as (url, asked):
        prepare = _amq(url, tmp_path / "netrc")
        _shell("\n".join((prepare, "echo", *before)), queue)
        assert asked[-2:] == [queue, queue]
        _shell("\n".join((prepare, 'use_queue orders "$DLQ"', *after, activemq.dead_letters("").command)), queue)
        assert asked[-3:] == ["orders", "orders", queue]


def test_no_activemq_command_spells_a_dead_letter_queue_out() -> None:
    """A broker may name its dead-letter queues as it likes: setting DLQ changes every check and every step."""
    commands = [check.command for entry in CATALOGUE for check in entry.checks.get("activemq", ())]
    fixes = [step if isinstance(step, str) else step.text for entry in CATALOGUE for step in entry.fix]
    assert [text for text in (*commands, *fixes) if "DLQ.$" in text] == []


@pytest.fixture
def account() -> Iterator[Stub]:
    """A Cloudflare account: `orders` with a dead-letter queue, and a queue without one."""
    with serving() as stub:
        stub.add("failed").send("{}")
        stub.add("orders", consumer={"script": "w", "type": "worker", "dead_letter_queue": "failed", "settings": {}})
        stub.add("alone", consumer={"script": "w", "type": "worker", "dead_letter_queue": "", "settings": {}})
        yield stub


def _cf(stub: Stub) -> str:
    prepare = f"{cloudflare.TOKEN}\n{cloudflare.PREPARE}"
    return prepare.replace("0123456789abcdef", ACCOUNT, 1).replace("https://api.cloudflare.com/client/v4", stub.url)


@pytest.mark.parametrize(
    ("queue", "then", "variables", "why"),
    [
        ("orders", "", ("orders", 1, "failed", 0), "its consumer names the dead-letter queue"),
        ("failed", "", ("failed", 0, "failed", 0), "the alert is about the dead-letter queue"),
        ("failed", "use_queue orders", ("orders", 1, "failed", 0), "on to the source queue"),
        ("alone", "", ("alone", 2, "", None), "no dead-letter queue"),
    ],
)
def test_cloudflare_finds_the_dead_letter_queue(
    account: Stub, queue: str, then: str, variables: tuple[str, int, str, int | None], why: str
) -> None:
    """A dead-letter queue's own consumer names none; consumers of other queues name it."""
    out = _shell(f'{_cf(account)}\n{then}\necho "$QUEUE,$QUEUE_ID,$DLQ,$DLQ_ID"', queue)
    name, number, dlq, dlq_number = variables
    assert out == f"{name},{number:032x},{dlq},{'' if dlq_number is None else f'{dlq_number:032x}'}", why


@pytest.mark.simulation
def test_cloudflare_checks_ask_the_dead_letter_queue_and_then_its_source(account: Stub) -> None:
    """The first check of DeadLetterArrived counts the dead letters, the second names their source."""
    backlog, sources, consumers = (check.command for check in BY_NAME["DeadLetterArrived"].checks["cloudflare_queues"][:3])
    assert '"backlog_count": 1' in _shell(f"{_cf(account)}\n{backlog}", "failed")
    assert _shell(f"{_cf(account)}\n{sources}", "failed") == "orders"
    assert '"dead_letter_queue": "failed"' in _shell(f"{_cf(account)}\nuse_queue orders\n{consumers}", "failed")
    for queue in ("orders", "failed"):
        assert '"backlog_count": 1' in _shell(f"{_cf(account)}\n{cloudflare.dead_letter_backlog('').command}", queue)


def test_cloudflare_shows_messages_by_the_current_endpoint(account: Stub) -> None:
    """`messages/preview` is the former name of `messages/peek`."""
    _shell(f"{_cf(account)}\n{cloudflare.peek('').command}", "failed")
    assert len(account.calls("/messages/peek")) == 1
    commands = [check.command for entry in CATALOGUE for check in entry.checks.get("cloudflare_queues", ())]
    assert [command for command in commands if "preview" in command] == []
