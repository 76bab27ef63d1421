"""Everything that sends names the topic that everything that reads is configured for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.wheels import ROOT

_ADDRESS = re.compile(r"kafka://[^\s/`'\"]+/([A-Za-z0-9._-]*[A-Za-z0-9])")
_PLACEHOLDER = "topic"


def _pages() -> list[Path]:
    folders = [
        ("docs", "*.md"),
        ("examples", "*.py"),
        ("client", "*.py"),
        ("client", "*.md"),
        ("deploy", "*.y*ml"),
        ("deploy", "*.json"),
    ]
    found = [path for folder, pattern in folders for path in sorted((ROOT / folder).rglob(pattern))]
    return [ROOT / "README.md", *(path for path in found if "node_modules" not in path.parts)]


def _topic_of_the_reference_configuration() -> str:
    text = (ROOT / "deploy/queuewatch.yaml").read_text()
    [written] = re.findall(r"^ *#? *topics: (.+)$", text, re.MULTILINE)
    [topic] = yaml.safe_load(written)
    return str(topic)


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in _pages()])
def test_every_kafka_address_names_the_topic_of_the_reference_configuration(page: str) -> None:
    """A reader who copies a sender from one page and the service from another must get one topic."""
    named = set(_ADDRESS.findall((ROOT / page).read_text())) - {_PLACEHOLDER}
    assert named <= {_topic_of_the_reference_configuration()}


def test_the_pages_do_name_kafka_addresses() -> None:
    """The pattern above finds what the pages show."""
    assert any(_ADDRESS.search(page.read_text()) for page in _pages())
