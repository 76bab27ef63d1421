"""The runbook's commands exist: operations, options and fields are checked against the services' own models."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import botocore.session
import pytest
from botocore import xform_name

from alerts.catalogue import CATALOGUE
from alerts.checks import activemq, cloudflare, sqs, watcher
from alerts.config import AlertRulesConfig
from alerts.entry import Check
from alerts.runbook import runbook_markdown
from streaming.judge.metrics import METRICS

# From the interfaces of the 6.3.1 broker (DestinationViewMBean, QueueViewMBean, SubscriptionViewMBean,
# ConnectionViewMBean, BrokerViewMBean).
JMX_ATTRIBUTES = frozenset(
    re.findall(
        r"\w+",
        "QueueSize InFlightCount EnqueueCount DispatchCount DequeueCount ExpiredCount ConsumerCount "
        "ProducerCount Paused ClientId ConnectionId DispatchedQueueSize MessageCountAwaitingAcknowledge "
        "PrefetchSize DequeueCounter Exclusive SlowConsumer Selector RemoteAddress Active Blocked Slow "
        "ActiveTransactionCount OldestActiveTransactionDuration MessageGroups MessageGroupType "
        "MemoryPercentUsage StorePercentUsage TempPercentUsage UptimeMillis CurrentConnectionsCount "
        "BrokerVersion AverageEnqueueTime MaxEnqueueTime MinEnqueueTime BlockedSends AverageBlockedTime "
        "MemoryLimit CursorPercentUsage CursorFull MaxPageSize MessagesCachedCount Options DLQ "
        "PrioritizedMessages SlowConsumerStrategy ProducerFlowControl Name",
    )
)
JMX_OPERATIONS = frozenset({"browse", "resume", "retryMessages", "removeMessageGroup", "removeAllMessageGroups", "stop"})
CLOUDFLARE_PATHS = (
    r"queues",
    r"queues/\$QUEUE_ID",
    r"queues/\$QUEUE_ID/(metrics|consumers|purge)",
    r"queues/\$QUEUE_ID/messages/peek",
    r"queues/\$DLQ_ID/metrics",
)
WRANGLER = (
    r"queues info \"\$QUEUE\"",
    r"queues (pause|resume)-delivery \"\$QUEUE\"",
    r"queues update \"\$QUEUE\" --message-retention-period-secs \d+",
    r"tail \"\$WORKER\" --format pretty --status error",
    r"deployments list --name \"\$WORKER\"",
)
GLOBAL_AWS_OPTIONS = {"--query", "--output", "--max-items"}


def _checks() -> Iterator[tuple[str, Check]]:
    for entry in CATALOGUE:
        for checks in (*entry.checks.values(), entry.watcher_checks):
            for check in checks:
                yield entry.name, check


CHECKS = list(_checks())
COMMANDS = sorted({check.command for _, check in CHECKS})
FIXES = [step if isinstance(step, str) else step.text for entry in CATALOGUE for step in entry.fix]
IN_FIXES = [command for step in FIXES for command in re.findall(r"`([^`]+)`", step) if " " in command]


@pytest.mark.parametrize("command", [c for c in [*COMMANDS, *IN_FIXES] if c.startswith("aws ")])
def test_aws_commands_exist(command: str) -> None:
    """Service, operation and all options are in the SDK's model, and required options are given."""
    words = shlex.split(command)
    service, operation = words[1], words[2]
    model = botocore.session.get_session().get_service_model(service)
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    assert operation in operations
    shape = model.operation_model(operations[operation]).input_shape
    assert shape is not None
    known = {f"--{xform_name(name, '-')}": name for name in shape.members}
    given = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
    assert given - GLOBAL_AWS_OPTIONS <= known.keys()
    required = {f"--{xform_name(name, '-')}" for name in shape.required_members}
    # A sentence about one attribute mentions `aws sqs set-queue-attributes` without options.
    if len(words) > 3:
        assert required <= given


def test_no_check_takes_a_message_away() -> None:
    """No check receives, deletes, moves, purges or leases anything; to ask for the time of the last purge only reads."""
    forbidden = re.compile(
        r"receive-message|delete-message|purge(?!Queue --start|\"$)|change-message-visibility|start-message-move|"
        r"messages/pull|messages/ack|removeMessage\b|moveM|copyM|retryMessage|set-queue-attributes|"
        r"queues (delete|update|purge|pause)",
        re.IGNORECASE,
    )
    assert [c for c in COMMANDS if forbidden.search(c)] == []


@pytest.mark.parametrize("command", [c for c in [*COMMANDS, *IN_FIXES] if c.startswith("amq ")])
def test_activemq_commands_use_existing_attributes_and_operations(command: str) -> None:
    """Attributes and operations are those of the broker's management interfaces."""
    quoted = re.match(r'amq "(read|exec)/([^"]*)"', command)
    assert quoted, command
    path = quoted[2].rsplit("/", 1) if quoted[1] == "read" else quoted[2].split("/", 1)
    if quoted[1] == "read":
        assert set(path[1].split(",")) <= JMX_ATTRIBUTES
    else:
        operation = path[1].split("/")[0].removesuffix("()")
        assert operation in JMX_OPERATIONS


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(("cf ", "npx "))])
def test_cloudflare_commands_use_published_endpoints(command: str) -> None:
    """Only REST paths and wrangler commands in Cloudflare's documentation are used."""
    if command.startswith("npx"):
        rest = command.removeprefix("npx wrangler ")
        assert any(re.fullmatch(known, rest) for known in WRANGLER), rest
        return
    paths = re.findall(r'cf "?((?:queues)[^"\s)]*)', command)
    assert paths
    for path in paths:
        bare = path if not path.startswith("queues/$(") else "queues"
        assert any(re.fullmatch(known, bare) for known in CLOUDFLARE_PATHS), path


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("series ")])
def test_watcher_commands_use_existing_metrics(command: str) -> None:
    """The prefix passed to grep matches a metric of the catalogue."""
    pattern = shlex.split(command.partition("|")[0] if "'" not in command.split()[1] else command)[1]
    assert any(re.match(pattern, metric.name) for metric in METRICS)


@pytest.mark.parametrize(
    "text",
    [*COMMANDS, sqs.PREPARE, activemq.PREPARE, cloudflare.TOKEN, cloudflare.PREPARE, watcher.prepare("queuewatch")],
    ids=lambda t: t[:40],
)
def test_commands_are_valid_shell(text: str) -> None:
    """Readers paste these commands, so they must parse."""
    bash = shutil.which("bash")
    assert bash, "these tests need bash"
    done = subprocess.run([bash, "-n"], input=text, capture_output=True, text=True, timeout=10)
    assert done.returncode == 0, done.stderr


def test_every_variable_of_a_command_is_set() -> None:
    """The runbook's first section sets every variable of its checks and remedies."""
    prepared = runbook_markdown(AlertRulesConfig()).partition("\n## All alerts\n")[0]
    known = set(re.findall(r"\b([A-Z][A-Z_]+|Q|B)=", prepared))
    used = {name for c in [*COMMANDS, *IN_FIXES] for name in re.findall(r"\$\{?([A-Z][A-Z_]*)", c)}
    # NF is an awk variable.
    assert used <= known | {"NF"}


def test_a_command_that_reads_input_is_a_block_of_its_own() -> None:
    """`read` would take the next pasted line as its input."""
    blocks = re.findall(r"```sh\n(.*?)\n```", runbook_markdown(AlertRulesConfig()), re.DOTALL)
    reading = [block for block in blocks if re.search(r"^read ", block, re.MULTILINE)]
    assert reading == [cloudflare.TOKEN]
    assert "\n" not in cloudflare.TOKEN
