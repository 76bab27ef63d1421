"""The signal about purges that destroyed work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from streaming.core.reporting.report import Purge
from streaming.judge.conditions.conditions import once
from streaming.judge.context import Context
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import duration_ms, plural, seconds
from streaming.judge.knowledge.signal_requirements import supported


def queue_purged(c: Context) -> Iterator[Finding]:
    """A purge removed at least one message that nobody had processed. One finding per queue, for all purges of the quiet time."""
    if not recent_purges(c):
        return
    # A purge empties the queue, so counts of the moment before contradict what is tracked: the basis it began with holds.
    basis = next((f.evidence["basis"] for f in c.firing_here("QueuePurged")), c.basis)
    exact = supported("QueuePurged", basis) == "exact"
    # Who reports deliveries also reports acknowledgements; of a message that was never delivered that is not known.
    purges = [p if exact else p._replace(messages=p.received, oldest_sent_at=p.oldest_received_sent_at) for p in recent_purges(c)]
    purges = [p for p in purges if p.messages]
    if not purges:
        return
    finding = c.finding("QueuePurged", "info", purges[0].at, _removed(c, purges, exact=exact))
    yield replace(finding, evidence={**finding.evidence, "basis": basis})


@once
def recent_purges(c: Context) -> list[Purge]:
    """Return the purges that are not over for the quiet time yet, oldest first."""
    if not c.summary.purges and not c.memory.purges:
        return []
    # Shards report a purge completely while events may be late; after that, each drops it in its own step.
    horizon = c.merged.high_water - c.settings.lateness_ms
    known = {p.at: p for p in c.summary.purges} | {p.at: p for p in c.memory.purges if p.at <= horizon}
    quiet_ms = int(c.thresholds.dropped_quiet_s * 1000)
    return sorted(p for p in known.values() if c.now - p.quiet_from < quiet_ms)


def _removed(c: Context, purges: list[Purge], *, exact: bool) -> dict[str, Any]:
    latest, removed = purges[-1], sum(p.messages for p in purges)
    oldest_ms = max(0, *(p.at - p.oldest_sent_at for p in purges))
    evidence: dict[str, Any] = {
        "purged": removed,
        "purged_exact": exact,
        "received": sum(p.received for p in purges),
        "purges": len(purges),
        "purged_at": latest.at,
        "oldest_age_s": seconds(oldest_ms),
    }
    if latest.quiet_from != latest.at:
        evidence["noticed_at"] = latest.quiet_from
    who = "A purge" if len(purges) == 1 else f"{len(purges)} purges"
    what = plural(removed, "dead letter" if c.is_dead_letter_queue else "message")
    evidence["summary"] = (
        f"{who} removed {what if exact else f'at least {what}'} from {c.name.queue} that nobody had processed; "
        f"the oldest had been sent {duration_ms(oldest_ms)} earlier."
    )
    return evidence
