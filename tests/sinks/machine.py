"""What a test needs of the machine it runs on: other programs, and ports nobody uses."""

from __future__ import annotations

import os
import shutil
import socket

import pytest


def needs(program: str) -> str:
    """The path of `program`; without it the test is skipped, or fails where CI=true promises it."""
    path = shutil.which(program)
    if path is None:
        reason = f"{program} is not installed (Debian has it)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
