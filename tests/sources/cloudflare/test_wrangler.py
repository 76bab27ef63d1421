"""Wrangler files in the forms people write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sources.cloudflare import jsonc
from sources.cloudflare.settings import Consumer
from sources.cloudflare.wrangler import WranglerError, read_wrangler

TOML = """
name = "shop" # the Worker
main = "src/index.ts"

[[queues.producers]]
queue = "orders"
binding = "ORDERS"
delivery_delay = 60

[[queues.consumers]]
queue = "orders"
max_batch_size = 50
max_batch_timeout = 30
max_retries = 10
dead_letter_queue = "orders-dlq"
retry_delay = 120
max_concurrency = 5

[[queues.consumers]]
queue = "mail"

[[env.staging.queues.consumers]]
queue = "orders-staging"
type = "http_pull"
visibility_timeout_ms = 5000
max_retries = 5
"""

JSONC = r"""
{
  // the Worker
  "name": "shop", /* said
  over lines */
  "vars": { "URL": "https://example.org//x", "TEXT": "/* no comment */ , ] \" // nor this" },
  "queues": {
    "consumers": [
      { "queue": "orders", "max_retries": 10, "dead_letter_queue": "orders-dlq", }, // trailing
    ], /* and here */
  },
}
"""

ORDERS = Consumer(
    script="shop",
    max_batch_size=50,
    max_batch_timeout_s=30,
    max_retries=10,
    retry_delay_s=120,
    max_concurrency=5,
    dead_letter_queue="orders-dlq",
)
DEFAULTS = Consumer(script="shop", max_batch_size=10, max_batch_timeout_s=5, max_retries=3, retry_delay_s=0, dead_letter_queue="")


def written(folder: Path, name: str, text: str) -> Path:
    """Write a file with this text and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_toml_file_is_read(tmp_path: Path) -> None:
    """Missing consumer settings get Cloudflare's defaults; producers keep their delay."""
    found = read_wrangler(written(tmp_path, "wrangler.toml", TOML))
    assert found.consumers == {"orders": ORDERS, "mail": DEFAULTS}
    assert found.delivery_delays_s == {"orders": 60}


def test_an_environment_has_queues_of_its_own(tmp_path: Path) -> None:
    """Wrangler environments do not inherit queues."""
    found = read_wrangler(written(tmp_path, "wrangler.toml", TOML), "staging")
    assert found.consumers == {
        "orders-staging": Consumer(type="http_pull", max_retries=5, retry_delay_s=0, visibility_timeout_s=5, dead_letter_queue="")
    }


@pytest.mark.parametrize("name", ["wrangler.jsonc", "wrangler.json"])
def test_json_with_comments_and_trailing_commas(tmp_path: Path, name: str) -> None:
    """Wrangler accepts both names with the same syntax."""
    found = read_wrangler(written(tmp_path, name, JSONC))
    assert found.consumers["orders"].max_retries == 10
    assert found.consumers["orders"].dead_letter_queue == "orders-dlq"


def test_a_file_without_queues_has_none(tmp_path: Path) -> None:
    """Most Workers have none."""
    assert read_wrangler(written(tmp_path, "wrangler.toml", 'name = "x"')).consumers == {}
    assert read_wrangler(written(tmp_path, "wrangler.json", "{}")).consumers == {}


@pytest.mark.parametrize(
    ("name", "text", "environment", "problem"),
    [
        ("wrangler.toml", "a = 1\nname = oops", None, "is not TOML: .*line 2"),
        ("wrangler.jsonc", '{\n  "name": oops\n}', None, "is not JSON, even with comments: .*line 2 column 11"),
        ("wrangler.jsonc", '{ "a": 1 /* open', None, "is not JSON"),
        ("wrangler.json", "[]", None, "is not an object"),
        ("wrangler.json", "[" * 100_000, None, "is not JSON"),
        ("wrangler.toml", 'queues = "none"', None, "queues is not a table"),
        ("wrangler.toml", "[queues]\nconsumers = 5", None, r"queues\.consumers is not a list of tables"),
        ("wrangler.toml", "[[queues.consumers]]\nmax_retries = 5", None, r"queues\.consumers\[0\] has no queue"),
        ("wrangler.toml", '[[queues.consumers]]\nqueue = "q"\nmax_retries = "5"', None, r"consumers\[0\]\.max_retries is '5'"),
        ("wrangler.toml", '[[queues.consumers]]\nqueue = "q"\nmax_retries = 2.5', None, "whole number"),
        ("wrangler.toml", '[[queues.consumers]]\nqueue = "q"\nmax_retries = true', None, "is True"),
        ("wrangler.toml", '[[queues.consumers]]\nqueue = "q"\ndead_letter_queue = 5', None, "dead_letter_queue is 5"),
        ("wrangler.toml", '[[queues.consumers]]\nqueue = "q"\nretry_delay = inf', None, "retry_delay is inf"),
        ("wrangler.toml", '[[queues.consumers]]\nqueue = "q"\nretry_delay = nan', None, "retry_delay is nan"),
        ("wrangler.toml", f'[[queues.consumers]]\nqueue = "q"\nmax_retries = 1{"0" * 400}', None, "max_retries is 1000"),
        ("wrangler.toml", f"a = {'[' * 100_000}", None, "is not TOML"),
        ("wrangler.toml", TOML, "production", "has no environment 'production'. It has: staging"),
        ("wrangler.toml", 'name = "x"', "production", "It has: none"),
    ],
)
def test_an_unusable_file_is_named(tmp_path: Path, name: str, text: str, environment: str | None, problem: str) -> None:
    """The error names the file and the problem."""
    path = written(tmp_path, name, text)
    with pytest.raises(WranglerError, match=problem) as caught:
        read_wrangler(path, environment)
    assert str(path) in str(caught.value)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    """It raises the same error as any other unusable file."""
    with pytest.raises(WranglerError, match="No such file"):
        read_wrangler(tmp_path / "wrangler.toml")
    (tmp_path / "wrangler.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WranglerError, match="not UTF-8"):
        read_wrangler(tmp_path / "wrangler.toml")


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "wrangler.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"name": "x"}).encode())
    assert read_wrangler(path).consumers == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "b // c"} // d', {"a": "b // c"}),
        ('{"a": "\\"//"}', {"a": '"//'}),
        ('["/*", "*/"]', ["/*", "*/"]),
        ("[1, 2, /* x */ // y\n ]", [1, 2]),
        ("[[1,],]", [[1]]),
        ('{"a": ",]"}', {"a": ",]"}),
        ("/**/1", 1),
        ('{"a":1,}', {"a": 1}),
    ],
)
def test_comment_markers_in_strings_are_kept(text: str, expected: object) -> None:
    """Commas count as trailing only before a closing bracket."""
    assert jsonc.loads(text) == expected


@pytest.mark.parametrize("text", ["[,]x", "[1,,]", "{,}", "[1] // ok\n]"])
def test_other_stray_commas_are_refused(text: str) -> None:
    """The parser accepts nothing else that JSON forbids."""
    with pytest.raises(ValueError, match="line"):
        jsonc.loads(text)
