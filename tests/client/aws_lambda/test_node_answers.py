"""Node.js up to 22: a handler may answer through a callback, the context or a promise, and each answer is reported."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from queuewatch.aws_lambda.layer import build
from tests.client.aws_lambda.receiver import Receiver
from tests.client.aws_lambda.runtime_api import Environment, environment
from tests.client.aws_lambda.test_carrying import event
from tests.services.node import find_node
from tests.services.provider import Services

HERE = Path(__file__).parent
FIRST_COMES_BACK = {"m0": "released", "m1": "deleted"}
ALL_COME_BACK = {"m0": "released", "m1": "released"}
ALL_DELETED = {"m0": "deleted", "m1": "deleted"}
NAMED, RAISED, RETURNED = "named in batchItemFailures", "raised RangeError", "returned"

ANSWERS = [
    ("callbackDeclared", "returned", FIRST_COMES_BACK, NAMED),
    ("callbackAtOnce", "returned", FIRST_COMES_BACK, NAMED),
    ("callbackInRest", "returned", FIRST_COMES_BACK, NAMED),
    ("callbackWithDefault", "returned", FIRST_COMES_BACK, NAMED),
    ("callbackApplied", "returned", FIRST_COMES_BACK, NAMED),
    ("callbackError", "error", ALL_COME_BACK, RAISED),
    ("callbackWithoutWaiting", "returned", FIRST_COMES_BACK, NAMED),
    ("callbackTwice", "returned", FIRST_COMES_BACK, NAMED),
    ("callbackThenThrows", "returned", FIRST_COMES_BACK, NAMED),
    ("callbackWithOpenHandle", "timeout", ALL_COME_BACK, "timed out"),
    ("succeeds", "returned", FIRST_COMES_BACK, NAMED),
    ("succeedsDeclaringCallback", "returned", ALL_DELETED, RETURNED),
    ("fails", "error", ALL_COME_BACK, RAISED),
    ("failsWithNothing", "error", ALL_COME_BACK, "raised undefined"),
    ("isDone", "returned", FIRST_COMES_BACK, NAMED),
    ("isDoneWithError", "error", ALL_COME_BACK, RAISED),
    ("failsThenCallsBack", "error", ALL_COME_BACK, RAISED),
    ("succeedsInPromise", "returned", FIRST_COMES_BACK, NAMED),
    ("promise", "returned", FIRST_COMES_BACK, NAMED),
    ("rejects", "error", ALL_COME_BACK, RAISED),
    ("throws", "error", ALL_COME_BACK, RAISED),
    ("plain", "returned", ALL_DELETED, RETURNED),  # the runtime ignores the result
    ("plainThenThrows", "error", {}, None),
    ("never", "timeout", ALL_COME_BACK, "timed out"),
]


@dataclass(frozen=True)
class Node:
    """Node and an unpacked layer."""

    executable: str
    layer: Path
    log: Path

    @contextmanager
    def start(self, own: str, ingest: Receiver | None) -> Iterator[Environment]:
        """Start the function `own`, with the wrapper if there is an endpoint for its telemetry."""
        wrapper = f"{self.layer}/nodejs/node_modules/queuewatch-lambda/handler.handler"
        variables = {"LAMBDA_TASK_ROOT": str(HERE / "apps"), "_HANDLER": wrapper if ingest else f"answers.{own}"}
        if ingest:
            variables |= {
                "QUEUEWATCH_LAMBDA_HANDLER": f"answers.{own}",
                "QUEUEWATCH_LAMBDA_VISIBILITY_TIMEOUT_S": "30",
                "QUEUEWATCH_LAMBDA_SEND_MS": "1000",
                "QUEUEWATCH_LAMBDA_TIMEOUT_MARGIN_MS": "700",
                "QUEUEWATCH_TO": ingest.url,
            }
        command = (self.executable, str(HERE / "callback_runtime.mjs"))
        with environment(command, variables, self.log) as function:
            yield function


@pytest.fixture(scope="module")
def node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Node with the layer."""
    folder = tmp_path_factory.mktemp("lambda-answers")
    shutil.unpack_archive(build("node", folder / "layer.zip"), folder / "opt")
    return Node(services.found(find_node).executable, folder / "opt", folder / "function.log")


@pytest.mark.parametrize(("own", "ending", "fates", "reason"), ANSWERS, ids=[row[0] for row in ANSWERS])
def test_the_answer_that_the_runtime_takes_is_reported(
    node: Node, ingest: Receiver, own: str, ending: str, fates: dict[str, str], reason: str | None
) -> None:
    """The first answer counts; the function's caller gets what it gets without the wrapper."""
    given = event("m0", "m1")
    with node.start(own, None) as bare:
        expected = bare.invoke(given, timeout_s=1.2)
    with node.start(own, ingest) as function:
        result = function.invoke(given, timeout_s=1.2)
    assert (result.kind, result.body) == (expected.kind, expected.body)
    assert result.kind == ending
    assert {e["message_id"]: e["type"] for e in ingest.events if e["type"] in ("deleted", "released")} == fates
    assert [e["reason"] for e in ingest.events if e["type"] == "batch"] == ([] if reason is None else [reason])


def test_a_function_is_invoked_again_after_each_kind_of_answer(node: Node, ingest: Receiver) -> None:
    """What one invocation leaves behind ends no later one."""
    for own in ("callbackInRest", "succeeds", "plain", "promise"):
        with node.start(own, ingest) as function:
            for i in range(3):
                assert function.invoke(event(f"{own}{i}", f"{own}{i}b")).kind == "returned"
    assert sum(e["type"] == "batch" for e in ingest.events) == 12


def test_the_wrapped_handler_declares_as_many_parameters_as_the_function(node: Node) -> None:
    """From Node.js 24 on the runtime refuses a handler that declares a callback, and no other."""
    wrapper = node.layer / "nodejs/node_modules/queuewatch-lambda/wrapper.mjs"
    script = f"""
        import {{ wrap }} from "{wrapper.as_uri()}";
        const settings = {{ to: "http://127.0.0.1:9400" }};
        console.log(JSON.stringify([() => {{}}, (a, b) => {{}}, (a, b, c) => {{}}].map((f) => wrap(f, settings).length)));
    """
    command = [node.executable, "--input-type=module", "--eval", script]
    assert json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout) == [0, 2, 3]


def test_an_error_whose_name_cannot_be_read_passes_unchanged(node: Node) -> None:
    """A name may be any value, and a getter may throw: neither may replace the function's own error, for which it retries."""
    wrapper = node.layer / "nodejs/node_modules/queuewatch-lambda/wrapper.mjs"
    script = f"""
        import {{ wrap }} from "{wrapper.as_uri()}";
        const named = Object.assign(new Error("charge failed"), {{ name: Symbol("own") }});
        const throwing = new Error("charge failed");
        Object.defineProperty(throwing, "name", {{ get() {{ throw new Error("of the getter"); }} }});
        const found = [];
        for (const own of [named, throwing]) {{
          const settings = {{ to: "http://127.0.0.1:9", sendMs: 0, earlyMs: 1000 }};
          const handler = wrap(async () => {{ throw own; }}, settings);
          const failed = (error) => found.push(error === own);
          await handler({json.dumps(event("m0"))}, {{}}).catch(failed);
          await handler({json.dumps(event("m0"))}, {{}}, failed).catch(failed);
        }}
        console.log(JSON.stringify(found));
    """
    command = [node.executable, "--input-type=module", "--eval", script]
    assert json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout) == [True] * 4
