"""Shortly before its deadline an invocation is reported as timed out; if its handler still returns, that comes first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import queuewatch.aws_lambda
from queuewatch.aws_lambda.carrier import Carrier
from queuewatch.aws_lambda.settings import Settings
from queuewatch.aws_lambda.wrapper import Wrapper
from streaming.core.settings import Settings as CoreSettings
from tests.client.aws_lambda.test_carrying import event
from tests.client.transports import Kept
from tests.core.driving import T0, run_steps
from tests.services.node import find_node
from tests.services.provider import Services
from tests.waiting import until

LEFT_MS = 60_000
_IN_NODE = """
import http from "node:http";
import { once } from "node:events";
import { wrap } from %s;
const kept = [];
const server = http.createServer(async (request, response) => {
  for await (const part of request) kept.push(...String(part).split("\\n").filter(Boolean).map((line) => JSON.parse(line)));
  response.statusCode = 202;
  response.end();
  server.emit("kept");
}).listen(0, "127.0.0.1");
await once(server, "listening");
const settings = { to: `http://127.0.0.1:${server.address().port}/`, consumer: "c", visibilityTimeoutS: 30, sendMs: 9000,
  earlyMs: %d, timeoutMarginMs: %d, reportsFailures: true };
const handler = async () => { while (!kept.some((e) => e.type === "released")) await once(server, "kept"); };
const context = { awsRequestId: "r1", getRemainingTimeInMillis: () => %d };
await wrap(handler, settings)(JSON.parse(process.argv[1]), context);
console.log(JSON.stringify(kept));
process.exit();
"""


class Context:
    """The context of an invocation whose margin has begun."""

    aws_request_id = "r1"

    def get_remaining_time_in_millis(self) -> int:
        """Return the time that the timeout of the function leaves."""
        return LEFT_MS


def by_python(given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the wrapper in Python reports of a handler that returns once the timeout was reported."""
    kept = Kept()

    def handler(_event: object, _context: object) -> None:
        until(lambda: any(e["type"] == "released" for e in kept.events()), "the timeout is reported")

    settings = Settings(to="x", consumer="c", send_ms=9_000, early_ms=LEFT_MS, timeout_margin_ms=LEFT_MS, visibility_timeout_s=30)
    Wrapper(handler, settings, Carrier(kept))(given, Context())
    return kept.events()


def by_node(given: dict[str, Any], executable: str) -> list[dict[str, Any]]:
    """Return what the wrapper in Node.js reports of such a handler."""
    module = Path(queuewatch.aws_lambda.__file__).parent / "node" / "wrapper.mjs"
    code = _IN_NODE % (json.dumps(module.as_uri()), LEFT_MS, LEFT_MS, LEFT_MS)
    command = [executable, "--input-type=module", "-e", code, json.dumps(given)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("language", ["python", "node"])
def test_a_handler_that_returns_after_all_fails_no_delivery(services: Services, language: str) -> None:
    """In a replay, as in order of time: `QueueFailing` fired, and resolved when the deletions followed."""
    given = event(*(f"m{n}" for n in range(30)))
    reported = by_python(given) if language == "python" else by_node(given, services.found(find_node).executable)
    received, deleted, released = ([e for e in reported if e["type"] == t] for t in ("received", "deleted", "released"))
    assert len(received) == len(deleted) == len(released) == 30
    began_at = received[0]["at"]
    assert {e["reason"] for e in released} == {"timed out"}
    assert all(began_at <= e["at"] < began_at + LEFT_MS - 1_000 for e in deleted)
    assert all(began_at + LEFT_MS <= e["at"] < began_at + LEFT_MS + 10_000 for e in released)
    in_time = sorted(reported, key=lambda e: e["at"])
    steps = [(e["at"] - T0, [e]) for e in in_time]
    for merged in run_steps(steps, CoreSettings(now_is_event_time=True)):
        assert all(queue.total("failed") == 0 for queue in merged.queues.values())
