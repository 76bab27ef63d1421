"""What the tests of the configuration share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.streaming.config.files import ConfigFile


@pytest.fixture
def write(tmp_path: Path) -> ConfigFile:
    """Return a function that writes a configuration file."""

    def write(text: str) -> Path:
        path = tmp_path / "queuewatch.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
