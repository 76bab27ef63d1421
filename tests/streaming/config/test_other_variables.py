"""Variables that begin with QUEUEWATCH_ and set no key of the configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streaming.config import Config, ConfigError, load_config
from streaming.config.check import unread_variables

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = {
    "QUEUEWATCH_SERVICE_HOST": "10.0.0.7",
    "QUEUEWATCH_SERVICE_PORT_HTTP": "9400",
    "QUEUEWATCH_PORT": "tcp://10.0.0.7:9400",
    "QUEUEWATCH_PORT_9400_TCP_ADDR": "10.0.0.7",
    "QUEUEWATCH_HTTP_SERVICE_HOST": "10.0.0.8",
    "QUEUEWATCH_HTTP_PORT": "tcp://10.0.0.8:9400",
}
"""What Kubernetes sets in every pod for two services called `queuewatch` and `queuewatch-http`."""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("QUEUEWATCH_HTTP_PORT", "QUEUEWATCH_HTTP__PORT"),
        ("QUEUEWATCH_SOURCE_KAFKA_TOPICS", "QUEUEWATCH_SOURCE__KAFKA__TOPICS"),
        ("QUEUEWATCH_JUDGE_THRESHOLDS_STALLED_S", "QUEUEWATCH_JUDGE__THRESHOLDS__STALLED_S"),
        ("QUEUEWATCH_COLLECT_SQS_REGIONS", "QUEUEWATCH_COLLECT__SQS__REGIONS"),
        ("QUEUEWATCH_ALERTMANAGER_DESTINATIONS", "QUEUEWATCH_ALERTMANAGER__DESTINATIONS"),
        ("QUEUEWATCH_COLLECT_ACTIVEMQ", "QUEUEWATCH_COLLECT__ACTIVEMQ"),
    ],
)
def test_a_key_with_single_underscores_is_refused(name: str, meant: str) -> None:
    """It would be ignored, and the service would listen, or read, where nobody expects it."""
    with pytest.raises(ConfigError) as caught:
        load_config(None, {name: "1"})
    assert str(caught.value).startswith(f"environment variable {name}: ")
    assert caught.value.fix == f"Did you mean {meant}?"


def warned(env: dict[str, str], path: Path | None = None) -> list[str]:
    return list(unread_variables(load_config(path, env), env))


def test_a_variable_that_nothing_reads_is_warned_about_and_not_refused() -> None:
    """It may be meant for a program that queuewatch knows nothing of."""
    (line,) = warned({"QUEUEWATCH_HTTP_PROT": "1"})
    assert line == "QUEUEWATCH_HTTP_PROT is not read: did you mean QUEUEWATCH_HTTP__PORT?"
    (line,) = warned({"QUEUEWATCH_RELEASE": "1"})
    assert line == "QUEUEWATCH_RELEASE is not read: a key is set by QUEUEWATCH_SECTION__KEY"


def test_variables_of_a_cluster_are_not_mentioned() -> None:
    """They are there whether they are wanted or not."""
    assert load_config(None, CLUSTER) == Config()
    assert warned(CLUSTER) == []


def test_variables_that_the_configuration_names_are_known(tmp_path: Path) -> None:
    """A password may be in a variable of any name."""
    path = tmp_path / "queuewatch.yaml"
    path.write_text("collect: {activemq: {username: me, password_env: QUEUEWATCH_COLLECT_ACTIVEMQ_PASSWORD}}\n")
    assert warned({"QUEUEWATCH_COLLECT_ACTIVEMQ_PASSWORD": "x"}, path) == []


def test_variables_of_all_parts_are_known() -> None:
    """Every one that code, docs and deployment files mention, except for those that are parts of names."""
    folders = [ROOT / name for name in ("client", "deploy", "docs", "scripts", "sources", "streaming")]
    files = [ROOT / "Makefile", *(path for folder in folders for path in folder.rglob("*.*"))]
    texts = [path.read_text() for path in files if path.suffix in ("", ".Dockerfile", ".json", ".md", ".mjs", ".py", ".yaml")]
    names = {name for text in texts for name in re.findall(r"\bQUEUEWATCH(?:_[A-Z0-9]+)+\b", text)}
    assert {"QUEUEWATCH_TO", "QUEUEWATCH_CACHE", "QUEUEWATCH_EXAMPLES", "QUEUEWATCH_LAMBDA_SEND_MS"} <= names
    assert warned(dict.fromkeys(names - {"QUEUEWATCH_PORT", "QUEUEWATCH_QUEUES"}, "1")) == []
