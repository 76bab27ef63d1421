"""Remedies: only steps that apply to the system and the reason, with known names filled into their commands."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

import pytest

from alerts.catalogue import BY_NAME, CATALOGUE
from alerts.entry import QUEUE_SYSTEMS, SYSTEM_TITLES, Entry
from alerts.known import known_variables
from alerts.remedy import QUOTED, Remedy, labelled, steps
from sinks.explain.advice import advice
from streaming.judge.findings.signals import SIGNAL_NAMES, Finding, SignalKey, SignalName
from tests.sinks.fakes import HOSTILE_NAMES

FIX = (
    "Always.",
    Remedy("`aws x`.", systems=("aws_sqs",)),
    Remedy("Stuck.", reasons=("poison_head",)),
    Remedy("`amq y`.", systems=("activemq",), reasons=("held_head",)),
)
TOOLS = {"aws_sqs": "aws ", "activemq": "amq ", "cloudflare_queues": "npx "}


def found(
    signal: SignalName, system: str = "aws_sqs", scope: str = "123456789012/eu-west-1", queue: str = "orders", **evidence: Any
) -> Finding:
    return Finding(SignalKey(signal, system, scope, queue, group=evidence.pop("group", None)), "warning", 0, evidence)


@pytest.mark.parametrize(
    ("system", "reason", "left", "why"),
    [
        ("aws_sqs", "poison_head", ("Always.", "`aws x`.", "Stuck."), "its system and its reason"),
        ("activemq", "held_head", ("Always.", "`amq y`."), "another reason"),
        ("activemq", "", ("Always.", "Stuck.", "`amq y`."), "no reason is given: those of every reason"),
        ("activemq", "odd", ("Always.", "Stuck.", "`amq y`."), "a reason no step names"),
        ("rabbitmq", "poison_head", ("Always.", "Stuck."), "a system without commands"),
        ("", "", ("Always.", "`aws x`.", "Stuck.", "`amq y`."), "not about a queue"),
    ],
    ids=lambda v: v if isinstance(v, str) and " " in v else "",
)
def test_only_steps_that_apply_are_shown(system: str, reason: str, left: tuple[str, ...], why: str) -> None:
    """An on-call engineer sees only steps for this system and this reason."""
    assert steps(FIX, system, reason, {}) == left, why


def test_a_step_that_the_evidence_rules_out_is_not_shown() -> None:
    """A queue without a dead-letter queue cannot let a message go there; where none is known, there may be one."""
    unknown = advice(found("PoisonMessage")).to_do
    without = advice(replace(found("PoisonMessage"), evidence={"has_dead_letter_queue": False})).to_do
    assert [step for step in unknown if step not in without] == [step for step in unknown if "dead-letter queue" in step]
    assert len(unknown) == len(without) + 1


def test_a_setting_that_is_missing_is_not_said_to_have_a_value() -> None:
    """The evidence of a queue without a dead-letter queue has no value to set; the summary of each rule says what to change."""
    to_do = advice(found("QueueMisconfigured", rule="no_dead_letter_queue")).to_do
    assert not any("value" in step for step in to_do)
    assert any("summary" in step for step in to_do)


def test_a_poison_message_without_a_limit_of_deliveries_ends_by_retention() -> None:
    """Of an SQS queue without a redrive policy it comes back for days."""
    assert "if there is no limit on them, its retention" in advice(found("PoisonMessage")).meaning


def test_the_runbook_shows_all_steps_with_what_they_apply_to() -> None:
    """The runbook is one page for all systems."""
    assert list(labelled(FIX, SYSTEM_TITLES)) == [
        "Always.",
        "Amazon SQS: `aws x`.",
        "`poison_head`: Stuck.",
        "ActiveMQ Classic, `held_head`: `amq y`.",
    ]


def test_known_names_are_filled_in_only_within_commands() -> None:
    """Variables outside of code, and unknown ones, stay as they are."""
    fix = ('`aws x "$QUEUE_URL" ${DLQ_ARN##*:} "${DLQ_ARN}" $OTHER` for $QUEUE_URL.',)
    assert steps(fix, "aws_sqs", "", {"QUEUE_URL": "https://u", "DLQ_ARN": "arn:d"}) == (
        '`aws x "https://u" ${DLQ_ARN##*:} "arn:d" $OTHER` for $QUEUE_URL.',
    )


@pytest.mark.parametrize("system", QUEUE_SYSTEMS)
@pytest.mark.parametrize("entry", [e for e in CATALOGUE if e.name in SIGNAL_NAMES], ids=lambda e: e.name)
def test_the_steps_for_a_system_have_no_commands_for_another(entry: Entry, system: str) -> None:
    """Readers lose trust in an SQS alert with an ActiveMQ command."""
    if entry.component == "watcher" or system in entry.not_applicable:
        return
    advised = steps(entry.fix, system, "", {})
    assert advised
    foreign = [tool for other, tool in TOOLS.items() if other != system]
    commands = [code for step in advised for code in QUOTED.findall(step)]
    assert [c for c in commands if c.startswith(tuple(foreign))] == []
    assert [step for step in advised if any(title in step for title in ("SQS:", "ActiveMQ:", "Cloudflare:"))] == []


@pytest.mark.parametrize(
    ("signal", "reasons"),
    [
        ("GroupStuck", ("poison_head", "held_head", "not_received")),
        ("QueueStalled", ("no_receives", "no_progress")),
        ("RedriveFailed", ("AccessDenied", "CouldNotDetermineMessageSource")),
    ],
)
def test_each_reason_has_its_steps(signal: SignalName, reasons: tuple[str, ...]) -> None:
    """Steps of different reasons differ, and without a reason all of them are shown."""
    fix = BY_NAME[signal].fix
    by_reason = [frozenset(steps(fix, "aws_sqs", reason, {})) for reason in reasons]
    assert frozenset().union(*by_reason) == frozenset(steps(fix, "aws_sqs", "", {}))
    assert all(one - frozenset().union(*(other for other in by_reason if other is not one)) for one in by_reason)
    assert {name for step in fix if isinstance(step, Remedy) for name in step.reasons} == set(reasons)


@pytest.mark.parametrize(
    ("finding", "command"),
    [
        (
            found("DeadLetterArrived", queue="orders-dlq"),
            'aws sqs start-message-move-task --source-arn "arn:aws:sqs:eu-west-1:123456789012:orders-dlq"',
        ),
        (
            found("DeadLetterExpiring", scope="123456789012/cn-north-1", queue="d.fifo"),
            'aws sqs set-queue-attributes --queue-url "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/d.fifo" '
            "--attributes MessageRetentionPeriod=1209600",
        ),
        (
            found("DeadLetterArrived", "activemq", "amq-1", "DLQ.orders"),
            'amq "exec/org.apache.activemq:type=Broker,brokerName=amq-1,destinationType=Queue,destinationName=DLQ.orders/'
            'retryMessages()"',
        ),
        (
            found("DeadLetterArrived", "activemq", "amq-1", "ActiveMQ.DLQ", from_queue="orders"),
            'amq "exec/org.apache.activemq:type=Broker,brokerName=amq-1,destinationType=Queue,destinationName=ActiveMQ.DLQ/'
            'retryMessages()"',
        ),
        (
            found("GroupStuck", "activemq", "amq-1", "orders", reason="not_received", group="eu-7"),
            'amq "exec/org.apache.activemq:type=Broker,brokerName=amq-1,destinationType=Queue,destinationName=orders/'
            'removeMessageGroup/eu-7"',
        ),
        (
            found("QueueStalled", "cloudflare_queues", "acme", "jobs", reason="no_receives"),
            'npx wrangler queues resume-delivery "jobs"',
        ),
        (found("DeadLetterArrived", scope="elasticmq", queue="d"), 'aws sqs start-message-move-task --source-arn "$DLQ_ARN"'),
        (
            found("DeadLetterArrived", scope="123456789012/us-iso-east-1", queue="d"),
            'aws sqs start-message-move-task --source-arn "$DLQ_ARN"',
        ),
    ],
    ids=[
        "arn",
        "url in China",
        "dead-letter queue of a broker",
        "shared dead-letter queue",
        "group",
        "queue name",
        "an account that is none",
        "isolated region",
    ],
)
def test_a_command_can_be_pasted_as_it_is(finding: Finding, command: str) -> None:
    """Queue, dead-letter queue, account, region and broker are known from the signal."""
    commands = [code for step in advice(finding).to_do for code in QUOTED.findall(step)]
    assert command in commands


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "$(touch x)", 'a";rm -rf ~;"', "`id`", "a b", "*", "q'"])
@pytest.mark.parametrize("system", QUEUE_SYSTEMS)
def test_an_external_name_never_becomes_a_command(name: str, system: str) -> None:
    """A name with shell characters leaves the variable unfilled; what is filled in has no special meaning to a shell."""
    finding = found("DeadLetterArrived", system, "123456789012/eu-west-1", name, group=name)
    for value in known_variables(finding).values():
        done = subprocess.run(
            ["bash", "-c", f'printf %s "{value}" {value}'], capture_output=True, text=True, timeout=10, check=True
        )
        assert done.stdout == 2 * value
