"""Every signal declares on which basis of knowledge it may fire, and that is enforced."""

from __future__ import annotations

from streaming.judge.findings.signals import SIGNAL_NAMES
from streaming.judge.knowledge.basis import BASES
from streaming.judge.knowledge.signal_requirements import SUPPORT, supported, withheld


def test_every_signal_declares_what_it_needs() -> None:
    """None is missing, and full telemetry supports all of them."""
    assert set(SUPPORT) == set(SIGNAL_NAMES)
    assert all(supported(signal, "messages") == "exact" for signal in SIGNAL_NAMES)


def test_what_needs_every_message_is_withheld_elsewhere() -> None:
    """How many groups have a backlog is known only with sends and ends."""
    for basis in BASES:
        if basis != "messages":
            assert {"LookAheadSaturated", "ConcurrencyCollapsed"} <= set(withheld(basis))


def test_a_stall_fires_wherever_somebody_counts() -> None:
    """It is detected by messages, or by the broker's counts."""
    assert [basis for basis in BASES if supported("QueueStalled", basis) is None] == ["unknown"]
