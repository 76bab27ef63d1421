"""A function drops its oldest reports once too many wait, and its log says so: once, and how many there were."""

from __future__ import annotations

import logging
import subprocess
from functools import partial
from pathlib import Path

import pytest

from queuewatch import aws_lambda
from queuewatch.aws_lambda.carrier import Carrier
from queuewatch.events import Event
from tests.client.transports import Broken, later
from tests.services.node import Node
from tests.waiting import until

FULL = "queuewatch: more than 5 events wait to be sent: the oldest are dropped"
SENT = "queuewatch: telemetry is sent again; 4 events were dropped meanwhile"

IN_NODE = """
import { Carrier } from "CARRIER";
let down = true;
const sent = [];
const transport = { maxBytes: 1000, async send(payload) { if (down) throw new Error("down"); sent.push(payload.toString()); } };
const carrier = new Carrier(transport, { maxEvents: 5, log: console.log });
for (let n = 0; n < 4; n++) carrier.offer(2, () => [{ n }, { n }]);
await carrier.deliver(1000);
down = false;
await carrier.deliver(1000);
carrier.offer(1, () => [{ n: 4 }]);
await carrier.deliver(1000);
console.log(sent.join("").replaceAll("\\n", " "));
"""


def test_the_log_of_a_function_in_python_says_it(caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken(later())
    carrier = Carrier(broken, max_events=5)
    with caplog.at_level(logging.WARNING):
        for n in range(4):
            carrier.offer(2, partial(list[Event], ({"n": n}, {"n": n})))
        assert not carrier.deliver(10)
        broken.error = None
        assert carrier.deliver(10)
        carrier.offer(1, lambda: [{"n": 4}])
        assert carrier.deliver(10)
        until(lambda: SENT in caplog.messages, "the number is logged")
    assert [event["n"] for event in broken.events()] == [2, 2, 3, 3, 4]
    assert [line for line in caplog.messages if "dropped" in line] == [FULL, SENT]


def test_the_log_of_a_function_in_node_says_it(node: Node) -> None:
    script = IN_NODE.replace("CARRIER", (Path(aws_lambda.__file__).parent / "node" / "carrier.mjs").as_uri())
    command = [node.executable, "--input-type=module", "-e", script]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed == [
        FULL,
        "queuewatch: telemetry is not sent: down",
        SENT,
        '{"n":2} {"n":2} {"n":3} {"n":3} {"n":4} ',
    ]
