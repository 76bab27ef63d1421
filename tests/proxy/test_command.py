"""The command line: help, health check, and messages about missing dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from botocore.session import Session

from queuewatch.proxy.options import parser
from queuewatch.proxy.settings import settings
from tests.proxy.fake_sqs import fake_sqs
from tests.services import proxy as proxy_service
from tests.services.process import free_port


def _command(*words: str, before: str = "pass", **more: str) -> subprocess.CompletedProcess[str]:
    program = f"import sys; {before}; from queuewatch.proxy.__main__ import main; sys.exit(main({list(words)!r}))"
    env = proxy_service.environment(more)
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("package", ["aiohttp", "botocore"])
def test_an_installation_without_the_extra_says_what_to_install(package: str) -> None:
    """There is no traceback, and the help works without the extra."""
    without = f"sys.modules[{package!r}] = None"
    done = _command("--to", "spool:/tmp/never", before=without)
    assert done.returncode == 2
    assert "in a checkout: pip install './client[proxy]'" in done.stderr
    assert "Traceback" not in done.stderr
    shown = _command("--help", before=without)
    assert shown.returncode == 0
    assert "AWS_ENDPOINT_URL_SQS=http://127.0.0.1:9410" in shown.stdout


@pytest.mark.slow
def test_the_log_says_that_telemetry_is_off() -> None:
    """It named a destination called None."""
    words = [sys.executable, "-m", "queuewatch.proxy", "--listen", "127.0.0.1:0", "--endpoint", "us-east-1=http://127.0.0.1:1"]
    environment = proxy_service.environment({"QUEUEWATCH_TO": ""})
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        listening = next(line for line in running.stderr if "listening" in line)
        running.kill()
    assert listening.rstrip().endswith("forwards to http://127.0.0.1:1 (us-east-1), telemetry off")


def test_an_ipv6_address_is_shown_as_urls_contain_it() -> None:
    """`::1:9410` is an address of its own, and not what `AWS_ENDPOINT_URL_SQS` accepts."""
    gone = _command("--check", "--listen", f"[::1]:{free_port()}")
    assert gone.returncode == 1
    assert re.match(r"queuewatch-proxy at \[::1\]:\d+ does not answer", gone.stderr)


@pytest.mark.slow
def test_check_says_whether_the_proxy_runs() -> None:
    """The exit code is 0 if a proxy answers and 1 if none does; nothing heavy is imported."""
    light = "sys.modules['aiohttp'] = sys.modules['botocore'] = None"
    with fake_sqs(lambda _: (200, "text/plain", b"")) as fake, proxy_service.start(fake.endpoint) as proxy:
        address = urlsplit(proxy.endpoint).netloc
        assert _command("--check", "--listen", address, before=light).returncode == 0
        taken = _command("--listen", address, "--endpoint", fake.endpoint, "--to", "spool:/tmp/never")
        assert taken.returncode == 1
        assert f"cannot listen on {address}" in taken.stderr
    gone = _command("--check", "--listen", address)
    assert gone.returncode == 1
    assert "does not answer" in gone.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "variables", "says"),
    [
        ((), {"AWS_PROFILE": "nope"}, ("nope", "AWS_PROFILE")),
        ((), {"AWS_PROFILE": "nope", "AWS_REGION": ""}, ("nope", "AWS_PROFILE")),
        ((), {"AWS_CA_BUNDLE": "/nonexistent"}, ("AWS_CA_BUNDLE=/nonexistent", "No such file", "name a PEM file")),
        ((), {"AWS_CA_BUNDLE": __file__}, (f"AWS_CA_BUNDLE={__file__}", "name a PEM file")),
        ((), {"QUEUEWATCH_PROXY_DRAIN_S": "abc"}, ("QUEUEWATCH_PROXY_DRAIN_S=abc", "use 25")),
        (("--drain-s", "-1"), {}, ("--drain-s=-1", "use 25")),
        (("--drain-s", "nan"), {}, ("--drain-s=nan", "use 25")),
        (("--check", "--listen", "foo"), {}, ("'foo'", "use HOST:PORT")),
        (("--lineage-attribute", "my id"), {}, ("--lineage-attribute", "'my id'", "letters, digits")),
        (
            (),
            {"QUEUEWATCH_LINEAGE_ATTRIBUTE": "AWS.id"},
            ("QUEUEWATCH_LINEAGE_ATTRIBUTE", "'AWS.id'", "does not begin with AWS."),
        ),
        (("--consumer", "c" * 513), {}, ("--consumer has 513 characters", "at most 512")),
        ((), {"QUEUEWATCH_SCOPE": "s" * 513}, ("QUEUEWATCH_SCOPE", "513 characters", "at most 512")),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(words: tuple[str, ...], variables: dict[str, str], says: tuple[str, ...]) -> None:
    """The line also says how to fix it, and the exit code is 2."""
    done = _command("--listen", "127.0.0.1:0", "--to", "spool:/tmp/never", *words, **variables)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert all(word in line for word in says)


def test_a_consumer_name_of_the_environment_is_cut_to_what_the_service_accepts() -> None:
    """As in the hooks: events with a longer one would be refused, and the application still gets its proxy."""
    environment = {"QUEUEWATCH_CONSUMER": "c" * 600, "AWS_REGION": "us-east-1"}
    given = parser(environment).parse_args([])
    assert settings(given, environment, Session()).consumer == "c" * 512
