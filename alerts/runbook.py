"""The runbook: one heading per alert, written for the person it paged."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.blocks import Block, Heading, Items, Links, Paragraph, Shell, Table, to_html, to_markdown
from alerts.catalogue import rule_text
from alerts.checks import activemq, cloudflare, sqs, watcher
from alerts.config import AlertRulesConfig
from alerts.entry import QUEUE_SYSTEMS, SYSTEM_TITLES, Check, Entry, QueueSystem
from alerts.prometheus_rules import enabled, for_s
from alerts.remedy import labelled
from streaming.core.thresholds import Thresholds

PREPARE: dict[QueueSystem, str] = {
    "aws_sqs": sqs.PREPARE,
    "activemq": activemq.PREPARE,
    "cloudflare_queues": cloudflare.PREPARE,
}


def runbook_markdown(config: AlertRulesConfig, thresholds: Thresholds | None = None) -> str:
    """Render the runbook as Markdown, with the configured thresholds."""
    return to_markdown(_blocks(config, thresholds))


def runbook_html(config: AlertRulesConfig, thresholds: Thresholds | None = None) -> str:
    """Render the same as one HTML page, with the same anchors."""
    return to_html("queuewatch runbook", _blocks(config, thresholds))


def _blocks(config: AlertRulesConfig, thresholds: Thresholds | None) -> Iterator[Block]:
    entries = list(enabled(config))
    yield from _opening(entries, config)
    for entry in entries:
        yield from _entry(entry, config, thresholds)


def _opening(entries: list[Entry], config: AlertRulesConfig) -> Iterator[Block]:
    yield Heading(1, "queuewatch runbook")
    yield Paragraph(
        "Generated from the catalogue of alerts; do not edit. If an alert woke you up, follow its link to its heading here, read "
        "what it means, prepare your shell once (below), and go through the first five checks in order."
    )
    yield Paragraph(
        "No check here receives, deletes or moves a message. Do not inspect a queue by receiving from it, as the SQS "
        'console\'s "Poll for messages" does: a receive hides the message from its consumers, raises its receive count, and may '
        "cause it to be dead-lettered."
    )
    yield Heading(2, "Prepare your shell")
    yield Paragraph(
        "For every alert, paste this first: it asks queuewatch itself what it knows, including message ids. In a queue's name, "
        "write `/` as `%2F` in a URL. If the service has `http.auth`, give curl the user (`--user NAME`) or the token (`--header "
        "'Authorization: Bearer …'`). The blocks are for bash, and for zsh after `setopt interactive_comments`."
    )
    yield Shell(
        f"{watcher.prepare(config.job)}\n"
        'curl -sS -H "Accept: text/plain" "$QUEUEWATCH/api/v1/explain/$QUEUE"   # why it fires, and what to do\n'
        'curl -fsS "$QUEUEWATCH/api/v1/queues/$QUEUE/messages" | jq .           # the suspects, with ids and attempts\n'
        "export MESSAGE_ID='...'                        # one of them\n"
        "export GROUP='...'                             # its group, if the queue has groups"
    )
    yield Paragraph(
        "The checks of queuewatch itself use kubectl. With Compose, read the logs with `docker compose -f deploy/compose.yaml "
        "logs queuewatch` (a collector's: `collect-sqs`, `collect-activemq` or `collect-cloudflare`), and put `docker compose -f "
        "deploy/compose.yaml exec queuewatch` in front of `queuewatch check-config`; with systemd, use `journalctl --unit "
        "queuewatch`, and run `queuewatch check-config` on the machine itself."
    )
    for system in QUEUE_SYSTEMS:
        yield Paragraph(f"(label `system` is `{system}`; after the block above)", SYSTEM_TITLES[system])
        if system == "cloudflare_queues":
            yield Paragraph(
                "First the API token, by itself: paste this line, then the token, and press Enter. It needs Queues Read, and "
                "Queues Edit for `messages/peek`."
            )
            yield Shell(cloudflare.TOKEN)
            yield Paragraph("Then the rest:")
        yield Shell(PREPARE[system])
    yield Heading(2, "All alerts")
    yield Table(
        ("Alert", "Severity", "About", "Summary"),
        [(f"[{e.alert_name}](#{e.anchor})", _severity(e), e.subject, e.alert.summary) for e in entries],
    )


def _entry(entry: Entry, config: AlertRulesConfig, thresholds: Thresholds | None) -> Iterator[Block]:
    switch = config.switch(entry)
    yield Heading(2, f"Alert name: {entry.alert_name}")
    yield Paragraph(f"{_severity(entry)}. About: {entry.subject}.", "Severity:")
    yield Paragraph(entry.meaning, "What it means.")
    yield Paragraph("", "When it fires.")
    steps = rule_text(entry, thresholds, switch.limit, for_s(entry, switch))
    yield Items([(step, "") for step in steps], numbered=True)
    yield Paragraph("", "Evidence.")
    yield Items([(f"`{field.name}`: {field.says}.", "") for field in entry.evidence])
    for system in QUEUE_SYSTEMS:
        if system in entry.checks:
            yield Paragraph("", f"First five checks on {SYSTEM_TITLES[system]}.")
            yield _checks(entry.checks[system])
        elif system in entry.not_applicable:
            yield Paragraph(entry.not_applicable[system], f"Not on {SYSTEM_TITLES[system]}.")
    if entry.watcher_checks:
        yield Paragraph("", "First five checks.")
        yield _checks(entry.watcher_checks)
    yield Paragraph("", "How to fix it.")
    yield Items([(step, "") for step in labelled(entry.fix, SYSTEM_TITLES)])
    yield Paragraph("", "When to ignore it.")
    yield Items([(reason, "") for reason in entry.ignore])
    yield Paragraph(entry.alert.why, "Why the expression looks like this.")
    if entry.links:
        yield Links([(link.title, link.url) for link in entry.links])


def _checks(checks: tuple[Check, ...]) -> Items:
    return Items([(f"{check.what}. Look for: {check.look_for.rstrip('?')}.", check.command) for check in checks], numbered=True)


def _severity(entry: Entry) -> str:
    usual = {
        "critical": "critical, pages somebody",
        "warning": "warning, for working hours",
        "info": "info, only shown",
    }[entry.severity]
    return f"{usual}; {entry.severity_rises}" if entry.severity_rises else usual
