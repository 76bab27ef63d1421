"""The signal about messages that are lost: dropped, or expired unprocessed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streaming.core.reporting.report import RETENTION_RAN_OUT, Loss
from streaming.judge.context import Context
from streaming.judge.findings.signals import Finding
from streaming.judge.findings.words import age_s, at_least, duration_ms, plural
from streaming.judge.rules.dead_letters import receives_of_dead_letter
from streaming.judge.rules.quiet_time import latest_findings, noticed, quiet_from


def message_dropped(c: Context) -> Iterator[Finding]:
    """A message was dropped (retries used up, no dead-letter queue) or expired unprocessed."""
    # A loss is reported for as long as events may be late, and at least once; its signal may last longer.
    found = {f.key: f for f in c.firing_here("MessageDropped") if not _is_disproved(c, f)}
    if not c.summary.losses and not found:
        return
    quiet_ms = int(c.thresholds.dropped_quiet_s * 1000)
    for loss in c.summary.losses:
        if loss.reason == RETENTION_RAN_OUT and c.basis != "messages":
            # It may have been received unseen long ago.
            continue
        finding = c.finding("MessageDropped", "critical", loss.at, _lost(c, loss), message_id=loss.message_id)
        found[finding.key] = finding
    for finding in latest_findings(found.values(), "lost_at", c.merged.queues.losses_per_queue):
        if c.now - quiet_from(finding, "lost_at") < quiet_ms:
            yield finding


def _is_disproved(c: Context, lost: Finding) -> bool:
    """Whether a message was not lost after all: it was delivered again, or processed or moved, so it is reported no more."""
    losses, most = c.summary.losses, c.merged.queues.losses_per_queue
    still_reported = quiet_from(lost, "lost_at") > c.now - c.settings.lateness_ms and len(losses) < most
    return still_reported and all(loss.message_id != lost.key.message_id for loss in losses)


def _lost(c: Context, loss: Loss) -> dict[str, Any]:
    rank, at, message_id, kind, reason, receives, sent_at, sent_known = loss
    known = {"receive_count": 0} if _was_never_received(c, loss) else receives_of_dead_letter(receives)
    evidence: dict[str, Any] = {
        "kind": kind,
        **known,
        "age_s": age_s(at, sent_at),
        "lost_at": at,
        **noticed(at, rank),
    }
    if not sent_known:
        evidence["age_exact"] = False
    if reason:
        evidence["reason"] = reason
    how = "expired" if kind == "expired" else "was dropped"
    why = f" ({_in_words(reason)})" if reason else ""
    after = f" after {plural(receives, 'receive')}" if known else ""
    # In an ordered dead-letter queue, retention and age count from the move.
    began = "it arrived" if c.is_dead_letter_queue and c.ordered else "it was sent"
    age = f"{at_least(exact=sent_known)}{duration_ms(at - sent_at)}"
    evidence["summary"] = f"Message {message_id} {how} unprocessed{why}{after}, {age} after {began}."
    return evidence


def _was_never_received(c: Context, loss: Loss) -> bool:
    """Whether no delivery of a lost message is known because there was none: its retries ran out for one that was dropped."""
    if loss.receive_count or loss.kind != "expired" or c.is_dead_letter_queue:
        return False
    return c.basis == "messages" or (c.basis == "consumers" and c.summary.last_received_at > 0)


def _in_words(reason: str) -> str:
    """Return the reason for a loss. A Worker reports the retry that was one too many: `retry`, or `retry; delivery 4 of 4`."""
    first, *rest = reason.split(";")
    return ";".join(["its retries ran out", *rest]) if first == "retry" else reason
