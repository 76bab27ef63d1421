"""docs/adapters.md, followed to the letter: its collector in a package of its own, installed, configured, run and replayed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.docs.test_client_pages import bash, blocks, found_first, kinds
from tests.docs.test_commands import shown_adapters
from tests.docs.test_situation_pages import _started
from tests.waiting import until
from tests.wheels import ROOT

PAGE = "docs/adapters.md"
BROKER = "http://127.0.0.1:15672"


class _Api(BaseHTTPRequestHandler):
    """The broker's list of queues."""

    def do_GET(self) -> None:
        queue = {"vhost": "shop", "name": "orders", "messages_ready": 7, "messages_unacknowledged": 2}
        body = json.dumps([queue]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _serving() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Api)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which the page's package is installed."""
    packages = tmp_path / "packages"
    about = packages / "rabbit_adapter-1.0.dist-info"
    about.mkdir(parents=True)
    [program] = blocks(PAGE, "python")
    (packages / "rabbit_adapter.py").write_text(program)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: rabbit-adapter\nVersion: 1.0\n")
    points = "".join(f"{name} = {value}\n" for name, value in shown_adapters().items())
    (about / "entry_points.txt").write_text(f"[queuewatch.collectors]\n{points}")
    path = os.pathsep.join(map(str, (packages, ROOT, ROOT / "client")))
    return found_first(Path(sys.executable).parent, dict(os.environ) | {"PYTHONPATH": path})


@pytest.mark.slow
def test_the_collector_of_the_page_runs(environment: dict[str, str], tmp_path: Path) -> None:
    """Its events are read without a complaint, and its counts are the queue's."""
    [config], [script, replay] = blocks(PAGE, "yaml"), blocks(PAGE, "sh")
    check, collect = script.splitlines()
    with _serving() as url:
        (tmp_path / "queuewatch.yaml").write_text(config.replace(BROKER, url))
        checked = bash(check, environment, tmp_path)
        assert "collects from rabbit" in checked.stdout, checked.stderr
        with _started(collect.split(), environment, tmp_path):
            spool = tmp_path / "queuewatch-data" / "spool"
            until(lambda: "queue_state" in kinds(spool), "the counts are reported", within_s=60, every_s=0.2)
    assert set(kinds(spool)) == {"heartbeat", "queue_state"}
    replayed = bash(replay, environment, tmp_path)
    assert replayed.returncode == 0, replayed.stderr
    lines = [json.loads(line) for line in replayed.stdout.splitlines()]
    depth = {line["labels"]["state"]: line["value"] for line in lines if line.get("name") == "queuewatch_queue_messages"}
    assert (depth["visible"], depth["in_flight"]) == (7, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("url:", "ulr:", "queuewatch.yaml:3: collect.rabbit.ulr: unknown key. Did you mean `url`?"),
        ("rabbit:", "rabit:", "queuewatch.yaml:3: collect.rabit: unknown key. Did you mean `rabbit`?"),
        (
            "  rabbit:",
            "  #",
            "collect.rabbit: the section is missing. Add it with what to collect from: url (required), name, interval_s",
        ),
    ],
)
def test_a_wrong_section_of_an_adapter_is_explained(
    environment: dict[str, str], tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    """As one of the service's own sections is."""
    [config] = blocks(PAGE, "yaml")
    (tmp_path / "queuewatch.yaml").write_text(config.replace(old, new))
    assert complaint in _refused(environment, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("import json", "import pika", "the rabbit collector needs pika, which is not installed; pip install rabbit-adapter"),
        ("    config_model", "    config", "rabbit_adapter:RabbitCollector has no `config_model`"),
        (
            "class RabbitCollector",
            "class Collector",
            "cannot be loaded: module 'rabbit_adapter' has no attribute 'RabbitCollector'",
        ),
    ],
)
def test_an_adapter_that_cannot_be_loaded_is_explained(
    environment: dict[str, str], tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    """With the package it came from; other commands than those that need it work."""
    program = tmp_path / "packages" / "rabbit_adapter.py"
    program.write_text(program.read_text().replace(old, new))
    [config] = blocks(PAGE, "yaml")
    (tmp_path / "queuewatch.yaml").write_text(config)
    assert complaint in _refused(environment, tmp_path)
    (tmp_path / "other.yaml").write_text("source: {spool: {folder: spool}}\n")
    assert bash("queuewatch check-config other.yaml", environment, tmp_path).returncode == 0


def _refused(environment: dict[str, str], folder: Path) -> str:
    """What the page's command says when it does not start."""
    collect = blocks(PAGE, "sh")[0].splitlines()[1]
    done = subprocess.run(collect.split(), env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr
