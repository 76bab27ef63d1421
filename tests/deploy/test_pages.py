"""The instructions on the pages about alerts and deployment work."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from alerts.catalogue import CATALOGUE
from alerts.config import AlertRulesConfig
from alerts.rules import generate
from sources.wire import decode_records
from tests.docs.test_commands import complaint

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ("alerts.md", "deploying.md", "migration.md")


def _text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_links_to_files_of_the_repository_work(name: str) -> None:
    """Only links out of docs/ are checked; other pages of the documentation may be missing."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", _text(name)):
        if not target.startswith("http") and target.startswith("../"):
            assert (DOCS / target).resolve().exists(), target


@pytest.mark.parametrize("name", PAGES)
def test_named_alerts_exist(name: str) -> None:
    """A renamed alert must be renamed on the pages too."""
    known = {entry.alert_name for entry in CATALOGUE}
    assert set(re.findall(r"\bQueuewatch\w+", _text(name))) <= known


def test_the_example_section_is_accepted() -> None:
    """It is tested exactly as on the page."""
    block = re.search(r"```yaml\n(alerts:.*?)```", _text("alerts.md"), re.DOTALL)
    assert block
    config = AlertRulesConfig.model_validate(yaml.safe_load(block[1])["alerts"])
    assert config.rules["MessageTooOld"].limit == 600


@pytest.mark.slow
def test_the_mixin_example_renders(tmp_path: Path) -> None:
    """It is tested exactly as on the page, from a folder with the generated files."""
    jsonnet = pytest.importorskip("_jsonnet", reason="the package jsonnet is not installed")
    block = re.search(r"```jsonnet\n(.*?)```", _text("alerts.md"), re.DOTALL)
    assert block
    generate(tmp_path / "alerts" / "generated")
    found = json.loads(jsonnet.evaluate_snippet(str(tmp_path / "x.jsonnet"), f"({block[1]}).prometheusAlerts"))
    rules = {rule["alert"]: rule for group in found["groups"] for rule in group["rules"] if "alert" in rule}
    assert "QueuewatchNoisyGroup" not in rules
    assert "> 600 unless" in rules["QueuewatchMessageTooOld"]["expr"]


def test_every_generated_file_is_on_the_page() -> None:
    """The page names every generated YAML and libsonnet file."""
    text = _text("alerts.md")
    for path in (ROOT / "alerts" / "generated").rglob("*"):
        if path.is_file() and path.suffix in (".yaml", ".libsonnet"):
            assert path.name in text, path.name


def _units() -> dict[str, str]:
    """The systemd units of the page, by file name."""
    found = re.findall(r"`/etc/systemd/system/([^`]+)`:\n\n```ini\n(.*?)```", _text("deploying.md"), re.DOTALL)
    assert [name for name, _ in found] == ["queuewatch.service", "queuewatch-collect@.service"]
    return dict(found)


@pytest.mark.parametrize("name", ["queuewatch.service", "queuewatch-collect@.service"])
def test_a_unit_runs_unprivileged_in_a_folder_of_its_own(name: str) -> None:
    """A relative path of the configuration is below the folder that systemd makes, and the unit can be enabled."""
    unit = configparser.RawConfigParser(strict=False)  # a unit may name several files of variables
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(_units()[name])
    service = unit["Service"]
    assert service["User"] == "queuewatch"
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    words = service["ExecStart"].replace("%i", "sqs").split()
    assert words[0].endswith("/bin/queuewatch")
    assert complaint(words[1:], complete=True) is None


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """With programs that exist, because systemd looks for them."""
    for name, text in _units().items():
        file = tmp_path / name.replace("@.", "@sqs.")
        file.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
        done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert file.name not in done.stderr, done.stderr


def test_the_events_of_the_example_are_valid() -> None:
    """The decoder accepts the events that the page posts."""
    line = re.search(r'echo "(\{.*\})"', _text("deploying.md"))
    assert line
    event = line[1].replace('\\"', '"').replace("$((now + i * 1000))", "1763726401000").replace("$now", "1763726400000")
    decoded = decode_records([event.replace("$i", "3").encode()])
    assert decoded.events.num_rows == 1
    assert not decoded.invalid
