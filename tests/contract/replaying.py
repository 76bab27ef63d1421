"""Replay recorded events through `run_replay`, exactly like the command, and query the lines it prints."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streaming.core.settings import Settings
from streaming.replay import recording
from streaming.replay.command import run_replay
from streaming.replay.run import local_engine
from tests.core.driving import T0

Line = dict[str, Any]


def ev(type_: str, at_s: float, queue: str = "q", **fields: Any) -> dict[str, Any]:
    """Build a wire event at `at_s` seconds after T0."""
    return {"v": 1, "type": type_, "at": T0 + round(at_s * 1000), "system": "aws_sqs", "queue": queue, **fields}


def ms(at_s: float) -> int:
    """Return the epoch milliseconds of `at_s` seconds after T0."""
    return T0 + round(at_s * 1000)


class Lines:
    """The output of a replay."""

    def __init__(self, text: str, errors: str) -> None:
        self._texts, self.errors = text.splitlines(), errors

    @cached_property
    def lines(self) -> list[Line]:
        """All lines. Most are metrics that no test asks for, so the queries below parse only what they need."""
        return self._parsed("")

    def _parsed(self, part: str) -> list[Line]:
        return [json.loads(text) for text in self._texts if part in text]

    def signals(self, name: str | None = None, status: str | None = None, **about: Any) -> list[Line]:
        """Return the matching signal lines."""
        chosen = [x for x in self._parsed('"kind":"signal"') if x["kind"] == "signal"]
        return [
            x
            for x in chosen
            if name in (None, x["signal"]) and status in (None, x["status"]) and all(x.get(k) == v for k, v in about.items())
        ]

    def times(self, name: str, status: str, **about: Any) -> list[float]:
        """Return when signals changed, in seconds after T0."""
        return [(x["at"] - T0) / 1000 for x in self.signals(name, status, **about)]

    def metric(self, name: str, **labels: str) -> dict[float, float]:
        """Return the values of one series by seconds after T0."""
        chosen = [x for x in self._parsed(f'"name":"queuewatch_{name}"') if x["kind"] == "metric"]
        chosen = [x for x in chosen if all(x["labels"].get(k) == v for k, v in labels.items())]
        return {(x["at"] - T0) / 1000: x["value"] for x in chosen}


def replayed(
    events: Sequence[dict[str, Any]],
    folder: Path,
    *,
    every: str = "60s",
    until_s: float | None = None,
    settings: Settings | None = None,
    apart_s: int = 1,
) -> Lines:
    """Return the lines of a replay of `events`, written to a file in `folder` in the order given.

    `apart_s`: with more than one second (5, 10 or 30), it is judged so far apart, and not at each event, as in the replay of a
    longer recording. That is enough where nothing is asked that happens between two such steps.
    """
    path = folder / "events.ndjson"
    path.write_text("".join(json.dumps(e) + "\n" for e in events))
    grid = tuple(apart for apart in recording.GRID_MS if apart >= 1000 * apart_s)
    most_exact = recording.MOST_EXACT_TIMES if apart_s == 1 else 0
    with patch.multiple(recording, GRID_MS=grid, MOST_EXACT_TIMES=most_exact):
        return replayed_file([path], every=every, until_s=until_s, settings=settings)


def replayed_file(
    paths: Sequence[Path], *, every: str = "60s", until_s: float | None = None, settings: Settings | None = None
) -> Lines:
    """Return the lines of a replay of files."""
    out, err = io.StringIO(), io.StringIO()
    code = run_replay(
        paths,
        every=every,
        until=None if until_s is None else str(ms(until_s)),
        settings=settings or Settings(),
        engine=local_engine,
        strict=False,
        out=out,
        err=err,
    )
    assert code == 0, err.getvalue()
    return Lines(out.getvalue(), err.getvalue())
