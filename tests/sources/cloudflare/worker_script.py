"""Run a script of `worker/` in Node and read what it printed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.services.node import Node

SCRIPTS = Path(__file__).parent / "worker"


def run_script(node: Node, name: str, *arguments: str, timeout_s: float) -> Any:
    """What `worker/NAME` printed: one JSON document. Fails with the script's own words."""
    command = [node.executable, str(SCRIPTS / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stderr[-4000:]}"
    return json.loads(done.stdout)
