"""Run a script of `worker/` in Node and read its output."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.services.node import Node

SCRIPTS = Path(__file__).parent / "worker"


def run_script(node: Node, name: str, *arguments: str, timeout_s: float) -> Any:
    """Return the JSON document that `worker/NAME` printed; fail with the script's stderr."""
    command = [node.executable, str(SCRIPTS / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout)
