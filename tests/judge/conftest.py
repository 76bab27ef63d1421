"""Fixtures of the judge's tests."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.judge import judge as module
from streaming.judge.context import Context
from streaming.judge.evaluation.evaluation import Evaluation, evaluate
from tests.core.driving import T0


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """When queues were judged, in milliseconds after T0, and which."""
    found: list[tuple[int, str]] = []

    def seen(c: Context, *concluded: Any) -> Evaluation:
        found.append((c.now - T0, c.name.queue))
        return evaluate(c, *concluded)

    monkeypatch.setattr(module, "evaluate", seen)
    return found
