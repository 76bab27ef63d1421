"""What the README and the docs show is what the program does: examples load, commands exist, links lead somewhere.

A fenced block says what it is by its language. YAML that begins with a section of the configuration is a configuration;
Python must compile and find its imports; every `make …`, in the text or in a shell block, must exist (and every
`queuewatch …`: `test_commands`).
"""

import ast
import importlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from sinks.http.access import Access
from sources.sqs.config import SqsCollectorConfig
from streaming.config.load import load_config
from streaming.config.model import Config
from tests.docs.promises import promises

_ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s#]+)")


@dataclass(frozen=True)
class Example:
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _pages() -> list[Path]:
    """The README and everything under docs."""
    return [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]


def _examples() -> Iterator[Example]:
    for page in _pages():
        content = page.read_text()
        for found in _FENCE.finditer(content):
            margin, language, text = found.groups()
            line = content.count("\n", 0, found.start()) + 1
            lines = [row.removeprefix(margin) for row in text.splitlines()]
            yield Example(str(page.relative_to(_ROOT)), line, language, "\n".join(lines))


def _of(*languages: str) -> list[Example]:
    return [example for example in _examples() if example.language in languages]


def _make_targets() -> list[tuple[str, str]]:
    """Where, and what follows `make`."""
    pages = [(page.name, page.read_text()) for page in _pages()]
    return [(where, promise.text) for where, text in pages for promise in promises("make", text, where)]


def test_the_readme_shows_something_to_check() -> None:
    assert _of("python"), "no Python example"
    assert {"demo", "test"} <= {arguments.split()[0] for _, arguments in _make_targets()}
    assert len(list(promises("queuewatch", (_ROOT / "README.md").read_text(), ""))) >= 5


@pytest.mark.parametrize("example", _of("yaml", "yml"), ids=str)
def test_a_configuration_loads(example: Example, tmp_path: Path) -> None:
    document = yaml.safe_load(example.text)
    if not isinstance(document, dict) or next(iter(document)) not in Config.model_fields:
        return  # somebody else's YAML: it need only be YAML
    if example.page == "docs/adapters.md":
        return  # its collector is in a package of its own, with which `test_adapters_page` loads it
    file = tmp_path / "queuewatch.yaml"
    file.write_text(example.text)
    load_config(file, {"QUEUEWATCH_SOURCE__KAFKA__SASL_PASSWORD": "secret"} if "sasl_username" in example.text else {})


@pytest.mark.parametrize(
    "example", [e for e in _of("sh", "console") if "queuewatch run --config queuewatch.yaml" in e.text], ids=str
)
def test_the_configuration_of_a_service_is_shown_before_it_is_started(example: Example) -> None:
    """Who follows the page has the file when the command names it."""
    before = [e.text for e in _of("yaml") if e.page == example.page and e.line < example.line]
    assert any("source" in yaml.safe_load(text) for text in before)


@pytest.mark.parametrize("example", _of("python", "py"), ids=str)
def test_python_compiles_and_finds_its_imports(example: Example) -> None:
    for node in ast.walk(ast.parse(example.text, filename=str(example))):
        if isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize(("where", "arguments"), _make_targets())
def test_a_make_target_exists(where: str, arguments: str) -> None:
    target = next(word for word in arguments.split() if "=" not in word and not word.startswith("-"))
    done = subprocess.run(["make", "--dry-run", target], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}: {done.stderr}"


def test_the_collector_that_drains_a_queue_is_shown_with_its_queue(tmp_path: Path) -> None:
    """It does not start without the name; pages that send to such a queue link to this one."""
    page, anchor = _ROOT / "docs" / "sqs.md", "#telemetry-through-a-queue"
    section = page.read_text().partition("### Telemetry through a queue")[2].partition("\n## ")[0]
    assert "queuewatch collect sqs-telemetry --config queuewatch.yaml" in section
    file = tmp_path / "queuewatch.yaml"
    file.write_text(re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0])
    config = load_config(file, {}).section("collect.sqs")
    assert isinstance(config, SqsCollectorConfig)
    assert config.telemetry is not None
    assert config.telemetry.queue in config.discovery.exclude
    for name in ("lambda.md", "install-client.md"):
        assert f"](sqs.md{anchor})" in (page.parent / name).read_text(), name


_PUBLIC = re.compile(r"https://([\w-]+(?:\.[\w-]+)+)(?=/api/v1/events\b|\"\n)")


@pytest.mark.parametrize("page", [page for page in _pages() if _PUBLIC.search(page.read_text())], ids=lambda page: page.name)
def test_the_service_answers_to_the_address_that_senders_get(page: Path, tmp_path: Path) -> None:
    """A page on which something sends to a public name shows the configuration that accepts it."""
    file, accepting = tmp_path / "queuewatch.yaml", []
    for example in _of("yaml"):
        if example.page == str(page.relative_to(_ROOT)) and "ingest" in example.text:
            file.write_text(example.text)
            accepting.append(load_config(file, {}).http)
    assert accepting, "no configuration enables the endpoint"
    for http in accepting:
        assert http.ingest.enabled
        for name in _PUBLIC.findall(page.read_text()):
            Access(hosts=http.allowed_hosts).check("/api/v1/events", name, "")


def test_pages_give_senders_public_addresses() -> None:
    """Or the test above would be one that cannot fail."""
    found = {page.name: set(_PUBLIC.findall(page.read_text())) for page in _pages() if _PUBLIC.search(page.read_text())}
    assert found == {name: {"queuewatch.example.org"} for name in ("cloudflare.md", "lambda.md")}


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = re.sub(_FENCE, "", page.read_text())
    broken = [target for target in _LINK.findall(text) if not (page.parent / target).exists()]
    assert broken == []
