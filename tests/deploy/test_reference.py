"""The configuration reference has every key of the models, with their defaults."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from streaming.config.external_sections import EXTERNAL_SECTIONS
from streaming.config.load import load_config
from streaming.config.model import Config
from streaming.config.section import FromEnvironment
from streaming.core.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
FILE = DEPLOY / "queuewatch.yaml"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """deploy/reference.py as a module."""
    spec = importlib.util.spec_from_file_location("queuewatch_reference", DEPLOY / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_matches_the_models(script: ModuleType) -> None:
    """After adding or renaming a key, or changing a default, run python deploy/reference.py."""
    assert FILE.read_text(encoding="utf-8") == script.reference()


def test_the_unchanged_file_gives_the_defaults() -> None:
    """Users may copy the whole file."""
    from streaming.config.model import to_settings

    loaded = load_config(FILE, env={})
    assert to_settings(loaded) == to_settings(Config())
    own = {name for name in Config.model_fields if (name,) not in EXTERNAL_SECTIONS and name not in ("judge", "collect")}
    assert {name: getattr(loaded, name) for name in own} == {name: getattr(Config(), name) for name in own}
    assert isinstance(to_settings(loaded), Settings)


def _uncommented() -> Any:
    """Return the file with every key uncommented."""
    text = re.sub(r"^(\s*)#(?! )(?=[\w-])", r"\1", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"^(\s*)#(  - |    )(?=\w)", r"\1\2", text, flags=re.MULTILINE)
    return yaml.safe_load(text)


def _keys(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key that a file may have."""
    from streaming.config.names import _model_in

    for name, info in model.model_fields.items():
        path = (*above, name)
        if any(isinstance(mark, FromEnvironment) for mark in info.metadata):
            continue
        yield path
        below = EXTERNAL_SECTIONS[path]() if path in EXTERNAL_SECTIONS else _model_in(info.annotation)
        if (
            below is not None
            and below is not BaseModel
            and path not in (("alerts", "rules"), ("alerts", "objectives"))
            and path[-1] != "thresholds"
        ):
            yield from _keys(below, path)


def test_every_key_of_every_model_is_listed() -> None:
    """Uncommented, the file is YAML with a value or a section for each key."""
    document = _uncommented()
    missing = []
    for path in _keys(Config):
        found = document
        for part in path:
            found = found[0] if isinstance(found, list) else found
            if not isinstance(found, dict) or part not in found:
                missing.append(".".join(path))
                break
            found = found[part]
    assert missing == []


@pytest.mark.parametrize(
    ("key", "choices"),
    [
        ("sasl_mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("after_reading", "keep, archive, delete"),
        ("format", "auto, console, json"),
        ("min_severity", "critical, warning, info"),
    ],
)
def test_a_key_that_takes_only_some_words_names_them(key: str, choices: str) -> None:
    """A reader of the file sees only the default, and cannot guess the others."""
    commented = re.search(rf"((?:^ *# .*\n)+) *#?{key}: ", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert commented is not None
    assert f"One of {choices}." in re.sub(r"\n *# ", " ", commented[1])


def test_the_file_has_no_key_for_a_secret() -> None:
    """Passwords and tokens are given by the name of an environment variable."""
    text = FILE.read_text(encoding="utf-8")
    assert re.findall(r"^\s*#?(?:\w*password|token): .*$", text, re.MULTILINE) == []
    assert "QUEUEWATCH_SOURCE__KAFKA__SASL_PASSWORD" in text
