"""The configuration refuses what would not work, and keeps secrets out of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sources.cloudflare.config import CloudflareCollectorConfig
from sources.cloudflare.settings import Backoff

ACCOUNT = "0123456789abcdef0123456789abcdef"


def config(**values: Any) -> CloudflareCollectorConfig:
    """Return a configuration with these values."""
    return CloudflareCollectorConfig.model_validate({"account_id": ACCOUNT, **values})


def test_an_account_is_enough() -> None:
    """Everything else has a default."""
    assert config().collector_name == f"cloudflare:{ACCOUNT}"
    assert config().api_url.startswith("https://")
    assert config().is_watched("anything")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"account_id": "no/slash"}, "account_id"),
        ({"token": "secret"}, "token"),
        ({"api_url": "http://api.example.org/v4"}, "unencrypted"),
        ({"api_url": "https://user:password@api.example.org"}, "plain https"),
        ({"api_url": "api.example.org"}, "plain https"),
        ({"queues": []}, "queues"),
        ({"requests_per_5min": 1}, "requests_per_5min"),
        ({"poll_interval_s": 0}, "poll_interval_s"),
        ({"sample": {"size": 101}}, "size"),
        ({"drain": {"queue": "t", "batch_size": 101}}, "batch_size"),
        ({"drain": {"queue": "t"}, "sample": {"instrumented": ["t"]}}, "carries telemetry"),
        ({"backoff": [{"queues": ["*"], "first_s": 30, "factor": 0.5}]}, "factor"),
        ({"polling": 3}, "polling"),
    ],
)
def test_an_invalid_configuration_is_refused(values: dict[str, Any], words: str) -> None:
    """The error names the key."""
    with pytest.raises(ValidationError, match=words):
        config(**values)


def test_a_stub_on_this_machine_may_be_unencrypted() -> None:
    """Tests and local proxies need it."""
    for host in ("127.0.0.1:8787", "localhost", "[::1]:80"):
        assert config(api_url=f"http://{host}/client/v4/").api_url == f"http://{host}/client/v4"


def test_the_token_comes_from_the_environment_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The line end is stripped, and the file is read on every call so that the token can be rotated."""
    monkeypatch.setenv("CF", " from-env\n")
    assert config(token_env="CF").token() == "from-env"
    file = tmp_path / "token"
    file.write_text("from-file\n")
    both = config(token_env="CF", token_file=file)
    assert both.token() == "from-file"
    file.write_text("rotated")
    assert both.token() == "rotated"


def test_a_missing_token_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the variable or the file."""
    monkeypatch.delenv("CF", raising=False)
    with pytest.raises(ValueError, match="CF is not set"):
        config(token_env="CF").token()
    with pytest.raises(ValueError, match="cannot be read"):
        config(token_file=tmp_path / "none").token()
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        config(token_file=tmp_path / "empty").token()


def test_the_first_backoff_that_matches_counts() -> None:
    """Pattern lists are evaluated in order, as everywhere in the configuration."""
    backoff = config(backoff=[{"queues": ["orders-*"], "first_s": 30, "factor": 30}, {"queues": ["*"], "first_s": 5}])
    assert backoff.backoff_of("orders-eu") == Backoff(30, 30)
    assert backoff.backoff_of("mail") == Backoff(5, 2)
    assert config().backoff_of("mail") is None
