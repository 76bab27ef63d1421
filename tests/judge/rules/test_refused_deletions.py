"""Work on a FIFO queue that outlasts its visibility window: deletions are refused, and the window is the cause of the rest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streaming.judge.findings.signals import Finding
from tests.contract.replaying import ev
from tests.judge.driving import Judged, in_steps, judged

pytestmark = pytest.mark.simulation

QUEUE = "q.fifo"
GROUPS = 8


def late(group: int, from_s: float, times: int, *, refused: bool = True) -> list[dict[str, Any]]:
    """Return a head that comes back every 40 s, with one message behind it. `refused`: the work on it ends too late."""
    about = {"queue": QUEUE, "message_id": f"head{group}", "group": f"g{group}"}
    behind = {"queue": QUEUE, "message_id": f"next{group}", "group": f"g{group}"}
    out = [ev("sent", from_s, **about), ev("sent", from_s + 1, **behind)]
    for n in range(times):
        out.append(ev("received", from_s + 2 + 40 * n, receive_count=n + 1, consumer="w", **about))
        out += [ev("outlived", from_s + 37 + 40 * n, consumer="w", **about)] * refused
    return out


def seen(*events: dict[str, Any], until_s: int) -> Judged:
    """Judge every ten seconds what was reported by then."""
    known = sorted(events, key=lambda e: e["at"])
    return judged(in_steps([e for e in known if e["at"] <= ev("x", until_s)["at"]], 10, until_s))


def heads(times: int = 3) -> list[dict[str, Any]]:
    """Return a queue with such a head, received so many times, in each of the groups."""
    state = ev("queue_state", 0, QUEUE, attributes={"kind": "fifo", "visibility_timeout_s": 30})
    return [state, *(e for group in range(GROUPS) for e in late(group, 10, times))]


def loud(found: Judged) -> list[Finding]:
    """Return what is announced by itself."""
    return [f for f in found.snapshots[-1].firing if f.announced]


def test_the_window_is_the_one_page_for_the_groups_that_it_blocks() -> None:
    """Its sentence says what to set; those of the groups and messages, which are listed, say why."""
    found = seen(*heads(), until_s=120)
    (window,) = loud(found)
    assert (window.key.signal, window.severity) == ("WindowTooShort", "critical")
    assert (window.evidence["late_messages"], window.evidence["stuck_groups"]) == (GROUPS, GROUPS)
    assert "Raise the visibility timeout to 60 s or more" in window.summary
    assert window.summary.endswith(" 8 poison suspects and 8 stuck groups come of that: deletions were refused as too late.")
    folded = [f for f in found.snapshots[-1].firing if f.folded == "WindowTooShort"]
    assert Counter(f.key.signal for f in folded) == {"PoisonMessage": GROUPS, "GroupStuck": GROUPS}
    (stuck, *_) = found.firing("GroupStuck")
    assert stuck.evidence["head_refused_settlements"] == 2
    assert " The deletion of its head was refused 2 times: the work takes longer than the visibility window" in stuck.summary


def test_a_page_about_the_window_stays_one_until_it_ends() -> None:
    """The heads are finished in time at last, and nothing is stuck any more. It was announced as a warning, and as a page."""
    done = [ev("deleted", 135, QUEUE, message_id=f"{name}{g}", consumer="w") for g in range(GROUPS) for name in ("head", "next")]
    found = seen(*heads(), *done, until_s=200)
    assert not found.firing("GroupStuck")
    (window,) = found.firing("WindowTooShort")
    assert window.severity == "critical"
    began = [c.finding.severity for c in found.changes if c.finding.key.signal == "WindowTooShort" and c.status == "firing"]
    assert began == ["warning", "critical"]


def test_a_message_that_fails_for_another_reason_is_announced() -> None:
    """None of its deletions was refused, so a longer window would not help."""
    found = seen(*heads(), *late(99, 10, 3, refused=False), until_s=120)
    assert {(f.key.signal, f.key.message_id or f.key.group) for f in loud(found)} == {
        ("WindowTooShort", None),
        ("PoisonMessage", "head99"),
        ("GroupStuck", "g99"),
    }


def test_the_queue_that_fails_because_of_its_window_is_the_same_page() -> None:
    """Nothing but deliveries that are finished too late: the queue fails, and the page about the window says why."""
    found = seen(*heads(times=6), until_s=180)
    (failing,) = found.firing("QueueFailing")
    assert failing.folded == "WindowTooShort"
    assert [f.key.signal for f in loud(found)] == ["WindowTooShort"]
    assert "Most deliveries of the queue fail because of that" in loud(found)[0].summary
