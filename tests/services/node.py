"""Node and the packages of package.json (miniflare, Cloudflare's runtime as a local process)."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.services.process import ServiceUnavailable

_ROOT = Path(__file__).parents[2]
_OLDEST = 20


@dataclass(frozen=True)
class Node:
    """A Node that can import the packages of package.json, for scripts inside the checkout."""

    executable: str
    modules: Path
    """The `node_modules` folder."""


def find_node() -> Node:
    """Return Node and its modules. Raises `ServiceUnavailable`."""
    executable = shutil.which("node")
    if executable is None:
        raise ServiceUnavailable(f"no node on PATH; install Node {_OLDEST} or newer")
    version = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < _OLDEST:
        raise ServiceUnavailable(f"{executable} is Node {version}; {_OLDEST} or newer is needed")
    modules = _ROOT / "node_modules"
    if not (modules / "miniflare").is_dir():
        raise ServiceUnavailable("the node packages are not installed; run npm ci")
    return Node(executable, modules)


def lambda_runtime_client() -> Path:
    """Return the `index.mjs` of Lambda's runtime interface client for Node.js. Raises `ServiceUnavailable`."""
    folder = _ROOT / "tests/client/aws_lambda/runtime/node_modules/aws-lambda-ric"
    if not (folder / "rapid-client.node").is_file():
        raise ServiceUnavailable("aws-lambda-ric is not compiled; install cmake and a C++ compiler and run make node")
    return folder / "index.mjs"
