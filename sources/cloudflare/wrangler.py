"""Read consumers and producers that a Worker's Wrangler file declares."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sources.cloudflare import jsonc
from sources.cloudflare.settings import Consumer

_WORKER_DEFAULTS: Final = {"max_batch_size": 10, "max_batch_timeout": 5, "max_retries": 3, "retry_delay": 0}
"""Cloudflare's defaults for a Worker where the file sets nothing."""
_PULL_DEFAULTS: Final = {"max_retries": 3, "retry_delay": 0, "visibility_timeout_ms": 30_000}
_MOST: Final = 10**9
"""No setting is larger; TOML has infinity and NaN, and JSON integers of any size."""


class WranglerError(ValueError):
    """A Wrangler file that cannot be used; the message names the file, the problem and the fix."""

    def __init__(self, path: Path, problem: str, fix: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}. {fix}")


@dataclass(frozen=True, slots=True)
class Wrangler:
    """The declarations of a file, by queue name."""

    consumers: Mapping[str, Consumer] = field(default_factory=dict)
    delivery_delays_s: Mapping[str, float] = field(default_factory=dict)
    """The producers' delay of everything they send."""


def read_wrangler(path: Path, environment: str | None = None) -> Wrangler:
    """Read the queues of a `wrangler.toml`, `wrangler.json` or `wrangler.jsonc`, for one of its environments or the top level.

    Raises `WranglerError`.
    """
    document = _parse(path)
    section: Any = document
    if environment is not None:
        environments = document.get("env")
        section = environments.get(environment) if isinstance(environments, dict) else None
        if not isinstance(section, dict):
            known = ", ".join(sorted(environments)) if isinstance(environments, dict) else "none"
            raise WranglerError(path, f"has no environment {environment!r}", f"It has: {known}")
    # An environment inherits many settings in Wrangler, but not queues.
    queues = section.get("queues", {})
    if not isinstance(queues, dict):
        raise WranglerError(path, "queues is not a table", "Write [[queues.consumers]] and [[queues.producers]]")
    script = section.get("name") or document.get("name")
    consumers = {}
    for entry in _entries(path, queues, "consumers"):
        consumers[entry.queue] = _consumer(entry, script if isinstance(script, str) else None)
    delays = {}
    for entry in _entries(path, queues, "producers"):
        delay_s = entry.number("delivery_delay", None)
        if delay_s is not None:
            delays[entry.queue] = delay_s
    return Wrangler(consumers, delays)


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WranglerError(path, f"cannot be read: {error.strerror}", "Correct wrangler_files") from error
    except UnicodeDecodeError as error:
        raise WranglerError(path, "is not UTF-8 text", "Save it as UTF-8") from error
    is_toml = path.suffix == ".toml"
    try:
        document = tomllib.loads(text) if is_toml else jsonc.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if is_toml else "JSON, even with comments"
        raise WranglerError(path, f"is not {kind}: {error}", "Correct it there") from error
    if not isinstance(document, dict):
        raise WranglerError(path, "is not an object", "Begin with { and the Worker's name")
    return document


@dataclass(frozen=True, slots=True)
class _Entry:
    """One consumer or producer, with its position for error messages."""

    path: Path
    place: str
    values: Mapping[str, Any]

    @property
    def queue(self) -> str:
        name = self.values.get("queue")
        if not isinstance(name, str) or not name:
            raise WranglerError(self.path, f"{self.place} has no queue", 'Write queue = "its name"')
        return name

    def number(self, key: str, default: float | None) -> float | None:
        value = self.values.get(key, default)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST):
            return value
        raise WranglerError(
            self.path, f"{self.place}.{key} is {value!r}", "Write a number without quotes, within Cloudflare's limits"
        )

    def count(self, key: str, default: int | None) -> int | None:
        value = self.number(key, default)
        if value is None or float(value).is_integer():
            return None if value is None else int(value)
        raise WranglerError(self.path, f"{self.place}.{key} is {value!r}", "Write a whole number")

    def text(self, key: str) -> str:
        value = self.values.get(key, "")
        if isinstance(value, str):
            return value
        raise WranglerError(self.path, f"{self.place}.{key} is {value!r}", "Write a name in quotes")


def _entries(path: Path, queues: Mapping[str, Any], name: str) -> list[_Entry]:
    entries = queues.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise WranglerError(path, f"queues.{name} is not a list of tables", f"Write [[queues.{name}]] before each")
    return [_Entry(path, f"queues.{name}[{i}]", entry) for i, entry in enumerate(entries)]


def _consumer(entry: _Entry, script: str | None) -> Consumer:
    if entry.text("type") == "http_pull":
        lease_ms = entry.number("visibility_timeout_ms", _PULL_DEFAULTS["visibility_timeout_ms"])
        return Consumer(
            type="http_pull",
            max_retries=entry.count("max_retries", _PULL_DEFAULTS["max_retries"]),
            retry_delay_s=entry.number("retry_delay", _PULL_DEFAULTS["retry_delay"]),
            visibility_timeout_s=None if lease_ms is None else lease_ms / 1000,
            dead_letter_queue=entry.text("dead_letter_queue"),
        )
    return Consumer(
        script=script,
        max_batch_size=entry.count("max_batch_size", _WORKER_DEFAULTS["max_batch_size"]),
        max_batch_timeout_s=entry.number("max_batch_timeout", _WORKER_DEFAULTS["max_batch_timeout"]),
        max_retries=entry.count("max_retries", _WORKER_DEFAULTS["max_retries"]),
        retry_delay_s=entry.number("retry_delay", _WORKER_DEFAULTS["retry_delay"]),
        max_concurrency=entry.count("max_concurrency", None),
        dead_letter_queue=entry.text("dead_letter_queue"),
    )
