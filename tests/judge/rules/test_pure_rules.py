"""Rules only read what the judge remembers: asked twice, they answer the same, and `remember` alone changes the memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from lab import harness
from lab.recording import Recording
from lab.scenarios import activemq, faults, incidents, operations
from lab.telemetry import INSTRUMENTATIONS, seen
from streaming.judge import judge as module
from streaming.judge.context import Context
from streaming.judge.memory.queue_memory import QueueMemory
from streaming.judge.rules.table import RULES

TRIGGER_MS = 10_000
AFTER_FAULT_MS = 600_000

pytestmark = pytest.mark.simulation

CASES: dict[str, Callable[[], Recording]] = {
    "failing consumers": lambda: incidents.bad_host("standard", 21),
    "noisy groups": lambda: faults.noisy_tenant("standard", 21),
    "stuck groups": lambda: faults.look_ahead_saturated("fifo", 21),
    "short windows": lambda: incidents.window_too_short("standard", 21),
    "dead letters": lambda: faults.dead_letters_drained("standard", 21),
    "purges": lambda: operations.purged_by_mistake("standard", 21),
    "strategies": lambda: activemq.mq_slow("standard", 21),
}


SIGNALS = {
    "failing consumers": {"QueueFailing"},
    "noisy groups": {"NoisyGroup"},
    "stuck groups": {"GroupStuck", "LookAheadSaturated"},
    "short windows": {"WindowTooShort"},
    "dead letters": {"DeadLetterArrived"},
    "purges": {"QueuePurged"},
    "strategies": {"SlowConsumer"},
}


def written(memory: QueueMemory) -> str:
    """Return all of a queue's memory as text."""
    return json.dumps(asdict(memory), default=repr)


@pytest.mark.parametrize("case", CASES)
def test_rules_are_pure(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule writes into the memory, and none depends on which rules ran before it."""
    apply_rules = module._apply_rules
    found: set[str] = set()

    def checked(c: Context) -> Any:
        before = written(c.memory)
        answer = apply_rules(c)
        assert written(c.memory) == before
        c.computed.clear()
        with monkeypatch.context() as patch:
            patch.setattr(module, "RULES", RULES[::-1])
            assert apply_rules(c) == answer
        assert written(c.memory) == before
        found.update(key.signal for key in answer[0])
        return answer

    monkeypatch.setattr(module, "_apply_rules", checked)
    recording = CASES[case]()
    until = (recording.fault_at() or 0) + AFTER_FAULT_MS
    harness.run(seen(recording, INSTRUMENTATIONS["full"]), trigger_ms=TRIGGER_MS, until=until)
    assert found >= SIGNALS[case]
