"""AWS SDKs other than this environment's boto3, where `make sdks` installs them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

_ENVIRONMENTS = Path(__file__).parents[2] / ".venv-sdks"


@dataclass(frozen=True)
class Sdk:
    """A virtual environment with an AWS SDK for Python."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def program(self, name: str) -> Path:
        """Return the path of a program in the environment."""
        return self.folder / "bin" / name


def require(name: str) -> Sdk:
    """Return the environment of `tests/sdks/NAME.txt`; without it the test is skipped, or fails in CI."""
    found = Sdk(_ENVIRONMENTS / name)
    if not (found.folder / "installed").exists():
        reason = f"{found.folder.name} is not installed; run make sdks"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found
