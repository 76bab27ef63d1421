"""Node.js: the function's own handler is found wherever one of the runtime interface clients 3 and 4 finds it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from queuewatch.aws_lambda import layer
from tests.services.node import find_node
from tests.services.provider import Services

MODULE = Path(layer.__file__).parent / "node/original.mjs"

FOUND = [
    ("app.js", "exports.handler = async () => 1;", "app.handler", "a module"),
    ("app.mjs", "export const handler = async () => 1;", "app.handler", "an ES module"),
    ("app/index.js", "exports.handler = async () => 1;", "app.handler", "a folder with an index"),
    ("src/app/index.cjs", "exports.handler = async () => 1;", "src/app.handler", "a folder whose package names its module"),
    ("app", "exports.handler = async () => 1;", "app.handler", "a file without an extension"),
    ("app.js", "exports.App = class { static async handler() { return 1; } };", "app.App.handler", "a static method"),
    ("app.js", "module.exports = () => {}; module.exports.handler = async () => 1;", "app.handler", "a property of a function"),
    ("app.mjs", "export default class { static async handler() { return 1; } }", "app.handler", "a static method of the default"),
    ("app.js", "exports.orders = { handler: async () => 1 };", "app.orders.handler", "a nested object"),
]
MISSING = [
    ("app.js", "exports.orders = null;", "app.orders.handler"),
    ("app.js", "exports.handler = 'text';", "app.handler.no"),
]


def load(services: Services, root: Path, name: str) -> str:
    """Return what the handler found under a name returns, or the name of the error."""
    script = f"""
        const {{ loadOriginal }} = await import("{MODULE.as_uri()}");
        const said = await loadOriginal().then((handler) => handler(), (error) => error.name);
        console.log(JSON.stringify(String(said)));
    """
    variables = {"PATH": os.environ["PATH"], "LAMBDA_TASK_ROOT": str(root), "QUEUEWATCH_LAMBDA_HANDLER": name}
    command = [services.found(find_node).executable, "--input-type=module", "--eval", script]
    return str(json.loads(subprocess.run(command, env=variables, capture_output=True, check=True, timeout=30).stdout))


@pytest.mark.parametrize(("file", "text", "name", "why"), FOUND, ids=[row[3] for row in FOUND])
def test_the_handler_is_found(services: Services, tmp_path: Path, file: str, text: str, name: str, why: str) -> None:
    """A function that runs without the layer runs with it."""
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if path.name == "index.cjs":
        (path.parent / "package.json").write_text('{"main": "index.cjs"}')
    assert load(services, tmp_path, name) == "1", why


@pytest.mark.parametrize(("file", "text", "name"), MISSING)
def test_a_handler_that_is_not_there_is_an_error(services: Services, tmp_path: Path, file: str, text: str, name: str) -> None:
    """The error is the runtime's."""
    (tmp_path / file).write_text(text)
    assert load(services, tmp_path, name) == "Runtime.HandlerNotFound"
