"""The API's data shapes: a snapshot as plain values. Times are in epoch milliseconds, ages in seconds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote, urlencode

from alerts.prometheus_rules import dashboard_uid
from sinks.explain.advice import advice
from sinks.explain.near_misses import NearMiss
from sinks.history import Trend
from sinks.objectives import ObjectiveResult
from sinks.store import Published, Resolved
from streaming.judge.findings.signals import Finding
from streaming.judge.snapshot import MessageView, QueueView

Json = dict[str, Any]


def queue_row(queue: QueueView, published: Published, trend: Trend | None, now_ms: int) -> Json:
    """Return one queue, or the queues folded into one row, as a table row."""
    findings = published.findings.get(queue.name, ())
    return {
        "system": queue.system,
        "scope": queue.scope,
        "queue": queue.queue,
        "folded_queues": len(queue.members),
        "worst_queue": queue.worst_member.queue if queue.worst_member else None,
        "status": queue.status,
        "shown_status": published.shown_status(queue),
        "kind": queue.kind,
        "ordered": queue.ordered,
        "is_dead_letter_queue": queue.is_dead_letter_queue,
        "visible": queue.visible,
        "in_flight": queue.in_flight,
        "delayed": queue.delayed,
        "tracked": queue.tracked,
        "tracked_states": dict(queue.tracked_states),
        "basis": queue.basis,
        "basis_since_ms": queue.basis_since_ms,
        "basis_reason": queue.basis_reason,
        "next_step": queue.next_step,
        "exact_ages": sorted(queue.exact_ages & queue.oldest_ms.keys()),
        "oldest_ms": dict(queue.oldest_ms),
        "oldest_age_s": {scope: age_s(now_ms, since_ms) for scope, since_ms in queue.oldest_ms.items()},
        "receive_count_max": queue.receive_count_max,
        "poison_messages": queue.poison_messages,
        "stuck_groups": queue.stuck_groups,
        "groups": dict(queue.groups),
        "time_to_drain_s": queue.time_to_drain_s,
        "coverage_ratio": queue.coverage_ratio,
        "dead_letter_expires_at_ms": queue.dead_letter_expires_at_ms,
        "last_event_at_ms": queue.last_event_at_ms,
        "last_received_at_ms": queue.last_received_at_ms,
        "last_settled_at_ms": queue.last_settled_at_ms,
        "severity": findings[0].severity if findings else None,
        "signals": _signal_counts(findings),
        "trend": trend_view(trend),
    }


def queue_detail(
    queue: QueueView,
    published: Published,
    trend: Trend | None,
    now_ms: int,
    *,
    sentence: str,
    near_misses: Iterable[NearMiss],
    objectives: Iterable[ObjectiveResult],
    members: Iterable[Json] = (),
    runbook_base_url: str | None,
    grafana_url: str | None,
) -> Json:
    """Return everything known about one queue."""
    return queue_row(queue, published, trend, now_ms) | {
        "sentence": sentence,
        "members": list(members),
        "firing": [finding_view(f, now_ms) | advice_view(f, runbook_base_url) for f in published.findings.get(queue.name, ())],
        "not_firing": [asdict(near) for near in near_misses],
        "objectives": [kept.to_dict() for kept in objectives],
        "dashboard_url": None if grafana_url is None else dashboard_url(grafana_url, queue),
        "messages": [message_view(message, now_ms) for message in queue.messages],
        "top_groups": [asdict(group) | {"oldest_age_s": age_s(now_ms, group.oldest_sent_at_ms)} for group in queue.top_groups],
        "other_groups": queue.other_groups,
        "other_groups_oldest_ms": queue.other_groups_oldest_ms,
        "consumers": [asdict(consumer) for consumer in queue.consumers],
        "other_consumers": queue.other_consumers,
        "other_consumers_held_since_ms": queue.other_consumers_held_since_ms,
        "totals": dict(queue.totals),
        "broker": dict(queue.broker),
        "clock_skew_s": queue.clock_skew_s,
    }


def dashboard_url(grafana_url: str, queue: QueueView) -> str:
    """Return the URL of the queue's dashboard."""
    variables = {"var-system": queue.system, "var-scope_id": queue.scope, "var-queue": queue.queue}
    return f"{grafana_url}/d/{dashboard_uid('queue')}?{urlencode(variables, quote_via=quote, errors='replace')}"


def message_view(message: MessageView, now_ms: int) -> Json:
    """Return one message with its timeline. `receive_count` is None for a dead letter whose deliveries were not reported."""
    unknown = not message.receive_count and message.arrived_at_ms is not None
    return asdict(message) | {
        "attempts": [attempt._asdict() for attempt in message.attempts],
        "receive_count": None if unknown else message.receive_count,
        "age_s": age_s(now_ms, message.sent_at_ms),
        "expires_in_s": None if message.expires_at_ms is None else age_s(message.expires_at_ms, now_ms),
    }


def finding_view(finding: Finding, now_ms: int) -> Json:
    """Return one firing signal. Its `id` does not change while it fires."""
    key = finding.key
    return {
        "id": finding_id(finding),
        "signal": key.signal,
        "severity": finding.severity,
        "alerting": finding.alerting,
        "folded": finding.folded,
        "system": key.system,
        "scope": key.scope,
        "queue": key.queue,
        "message_id": key.message_id,
        "group": key.group,
        "consumer": key.consumer,
        "part": key.part,
        "since_ms": finding.since_ms,
        "firing_s": age_s(now_ms, finding.since_ms),
        "summary": finding.summary,
        "evidence": {name: value for name, value in finding.evidence.items() if name != "summary"},
    }


def advice_view(finding: Finding, runbook_base_url: str | None) -> Json:
    """Return the meaning of a signal and what to do about it."""
    found = advice(finding, runbook_base_url)
    return {"meaning": found.meaning, "to_do": list(found.to_do), "runbook_url": found.runbook_url}


def resolved_view(resolved: Resolved) -> Json:
    """Return a resolved signal."""
    return finding_view(resolved.finding, resolved.at_ms) | {"resolved_at_ms": resolved.at_ms}


def trend_view(trend: Trend | None) -> Json | None:
    """Return a queue's recent history."""
    return None if trend is None else asdict(trend)


def summary_view(published: Published, now_ms: int) -> Json:
    """Return a summary of all queues."""
    snapshot = published.snapshot
    return published.once("counts", lambda: _counts(published)) | {
        "pipeline": asdict(snapshot.pipeline),
        "collectors": dict(snapshot.collectors),
        "events_total": dict(snapshot.events_total),
        "invalid_total": dict(snapshot.invalid_total),
        "folded": dict(snapshot.folded),
        "at_ms": snapshot.at_ms,
        "now_ms": now_ms,
        "behind_ms": snapshot.behind_ms,
        "version": published.version,
    }


def member_view(queue: QueueView, published: Published) -> Json:
    """Return one of the queues folded into a row, briefly."""
    findings = published.findings.get(queue.name, ())
    return {
        "system": queue.system,
        "scope": queue.scope,
        "queue": queue.queue,
        "status": queue.status,
        "shown_status": published.shown_status(queue),
        "visible": queue.visible,
        "in_flight": queue.in_flight,
        "oldest_ms": dict(queue.oldest_ms),
        "severity": findings[0].severity if findings else None,
        "signals": _signal_counts(findings),
    }


def _counts(published: Published) -> Json:
    """Count over all queues; those folded into one row count as one, except for their messages."""
    snapshot, findings, rows = published.snapshot, published.findings, published.rows
    sources = [queue for queue in snapshot.queues if not queue.is_dead_letter_queue]
    oldest_ms = min((queue.oldest_ms["all"] for queue in sources if "all" in queue.oldest_ms), default=None)
    return {
        "queues": len(rows),
        "folded_queues": sum(len(aggregated.members) for aggregated in snapshot.aggregated_queues),
        "statuses": dict(Counter(published.shown_status(queue) for queue in rows)),
        "queues_firing": sum(queue.name in findings for queue in rows),
        "queues_alerting": sum(findings[q.name][0].severity != "info" for q in rows if q.name in findings),
        "firing": dict(Counter(finding.severity for finding in snapshot.firing)),
        "firing_without_queue": dict(Counter(finding.severity for finding in snapshot.firing if not any(finding.key.queue_name))),
        "visible": _sum([queue.visible for queue in snapshot.queues]),
        "in_flight": _sum([queue.in_flight for queue in snapshot.queues]),
        "dead_letters": _sum([queue.visible for queue in snapshot.queues if queue.is_dead_letter_queue]),
        "oldest_ms": oldest_ms,
        "oldest_is_exact": None if oldest_ms is None else all(queue.is_oldest_exact("all") for queue in sources),
    }


def _sum(counts: Sequence[int | None]) -> int | None:
    """Return the sum of the known counts, or None if there are queues and the count of none is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known or not counts else None


def finding_id(finding: Finding) -> str:
    """Return a short id of a signal's subject that is safe in URLs and HTML ids."""
    key = finding.key
    parts = (key.signal, key.system, key.scope, key.queue, key.message_id, key.group, key.consumer, key.part)
    text = "\x1f".join("\x00" if part is None else part for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def age_s(now_ms: int, since_ms: int) -> float:
    """Return the seconds from `since_ms` to `now_ms`, never negative."""
    return max(0, now_ms - since_ms) / 1000


def _signal_counts(findings: Sequence[Finding]) -> list[Json]:
    """Count how often each signal fires, with its worst severity; `findings` must be sorted worst first."""
    counts: Counter[str] = Counter(finding.key.signal for finding in findings)
    worst: dict[str, str] = {}
    for finding in findings:
        worst.setdefault(finding.key.signal, finding.severity)
    return [{"signal": name, "severity": severity, "count": counts[name]} for name, severity in worst.items()]
