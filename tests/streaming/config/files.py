"""Configuration files for tests: how they are written, and which errors are found in them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from streaming.config import ConfigError, ConfigErrors, load_config

ConfigFile = Callable[[str], Path]


def mistakes(path: Path, **env: str) -> list[ConfigError]:
    """Return every error that `load_config` finds."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, env)
    return caught.value.errors if isinstance(caught.value, ConfigErrors) else [caught.value]


def bomb(repeated: str) -> str:
    """Return a few lines in which each anchor repeats the one before it nine times."""
    names = "abcdefghijkl"
    lines = [f"{name}: &{name} " + repeated.format(",".join([f"*{below}"] * 9)) for below, name in pairwise(names)]
    return "\n".join(["a: &a {x: 1}", *lines, ""])
