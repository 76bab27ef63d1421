"""What is configured for each queue is found once, and remembered for a limited number of queues."""

from __future__ import annotations

import pytest

from streaming.core import settings
from streaming.core.settings import FoldRule, QueueName, QueueRule, Settings


def test_queues_that_come_and_go_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found is right all the same."""
    monkeypatch.setattr(settings, "NAMES_KEPT", 10)
    configured = Settings(rules=(QueueRule("slow-*", {"stalled_s": 7}),), folds=(FoldRule("reply-*"),))
    for n in range(100):
        slow, reply = QueueName("aws_sqs", "", f"slow-{n}"), QueueName("aws_sqs", "", f"reply-{n}")
        assert [configured.thresholds(name).stalled_s == 7 for name in (slow, reply)] == [True, False]
        assert [configured.fold_of(name) for name in (slow, reply)] == [None, configured.folds[0]]
        assert len(configured._resolved) <= 10
        assert len(configured._fold_of) <= 10
