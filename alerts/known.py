"""The variables of the runbook's commands that are known from a signal.

The values are used in commands that people paste into a shell, and queue names are untrusted input: a value with a character that
is special to a shell stays a variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from streaming.judge.findings.signals import Finding, SignalName

_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+-]{1,256}")
_OBJECT_NAME = re.compile(r"[A-Za-z0-9_.@+-]{1,256}")
"""Characters that need no escaping in a JMX name or a Jolokia path."""
_ACCOUNT_REGION = re.compile(r"(\d{12})/(?![a-z]{2}-iso)([a-z]{2}(?:-[a-z]+)+-\d)")
"""Not the isolated regions (`us-iso-east-1`), whose domains are others."""
_ABOUT_DEAD_LETTERS: frozenset[SignalName] = frozenset(
    {"DeadLetterArrived", "DeadLetterExpiring", "RedriveFailed", "RedriveStalled"}
)
"""Signals whose queue is the dead-letter queue itself."""


def known_variables(finding: Finding) -> Mapping[str, str]:
    """Map variables to values, without those that are unknown or not safe to paste."""
    return dict(_variables(finding))


def _variables(finding: Finding) -> Iterator[tuple[str, str]]:
    key, evidence = finding.key, finding.evidence
    about = {
        "MESSAGE_ID": key.message_id or evidence.get("head_message_id"),
        "GROUP": key.group,
        "QUEUE": key.queue,
    }
    for name, value in about.items():
        plain = _OBJECT_NAME if name == "GROUP" else _PLAIN
        if isinstance(value, str) and plain.fullmatch(value):
            yield name, value
    dead_letters = key.queue if key.signal in _ABOUT_DEAD_LETTERS else evidence.get("dead_letter_queue")
    for prefix, queue in (("QUEUE", key.queue), ("DLQ", dead_letters)):
        if isinstance(queue, str) and _PLAIN.fullmatch(queue):
            yield from _addresses(prefix, key.system, key.scope, queue)


def _addresses(prefix: str, system: str, scope: str, queue: str) -> Iterator[tuple[str, str]]:
    """Return the names by which the system's own tools address the queue."""
    if system == "aws_sqs" and (account_region := _ACCOUNT_REGION.fullmatch(scope)):
        account, region = account_region.groups()
        china = region.startswith("cn-")
        partition = "aws-cn" if china else "aws-us-gov" if region.startswith("us-gov-") else "aws"
        yield f"{prefix}_URL", f"https://sqs.{region}.amazonaws.com{'.cn' if china else ''}/{account}/{queue}"
        yield f"{prefix}_ARN", f"arn:{partition}:sqs:{region}:{account}:{queue}"
    if system == "activemq" and _OBJECT_NAME.fullmatch(scope) and _OBJECT_NAME.fullmatch(queue):
        broker = f"org.apache.activemq:type=Broker,brokerName={scope}"
        yield "B", broker
        if prefix == "QUEUE":
            yield "Q", f"{broker},destinationType=Queue,destinationName={queue}"
        else:
            yield prefix, queue
