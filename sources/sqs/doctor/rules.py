"""The rules of `queuewatch doctor sqs`: one function each, from a queue's settings to a problem with them. Pure.

A rule concludes nothing from an unknown setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from queuewatch.places import place_of_arn
from sources.doctor.finding import Finding, Severity
from sources.sqs.doctor.settings import Queues, QueueSettings

LAMBDA_VISIBILITY_FACTOR: Final = 6
"""AWS recommends a visibility timeout of at least six function timeouts, plus the batching window."""
MAX_VISIBILITY_S: Final = 43_200
MAX_RETENTION_S: Final = 1_209_600


class Problem(NamedTuple):
    """The problem a rule found."""

    severity: Severity
    summary: str
    fix: str


Rule = Callable[[QueueSettings, Queues], Problem | None]


def findings(queues: Queues) -> Iterator[Finding]:
    """Yield all problems of the queues."""
    for queue in queues.by_key.values():
        for name, rule in RULES.items():
            problem = rule(queue, queues)
            if problem is not None:
                yield Finding(rule=name, queue=queue.name, scope=queue.scope, **problem._asdict())


def no_dead_letter_queue(queue: QueueSettings, queues: Queues) -> Problem | None:
    """Without a redrive policy a message that always fails comes back until its retention runs out."""
    if queue.redrive is not None or queues.is_dead_letter_queue(queue) or queue.looks_like_dead_letters:
        return None
    if queues.has_unknown_targets:
        return Problem(
            "info",
            "It has no dead-letter queue, unless it is one itself: some redrive policy here leads to a queue that is not named.",
            "If it is not a dead-letter queue, give it one.",
        )
    return Problem(
        "warning",
        "It has no dead-letter queue: a message that always fails is received again and again until its retention runs out, "
        "and is then lost.",
        f"Create a {queue.kind} dead-letter queue and a redrive policy with maxReceiveCount 3 or more.",
    )


def dead_letter_queue_missing(queue: QueueSettings, queues: Queues) -> Problem | None:
    """A redrive policy names a queue that was deleted."""
    target = _target(queue)
    if target is None or target not in queues.missing:
        return None
    return Problem(
        "critical",
        f"Its dead-letter queue {place_of_arn(target).queue} does not exist: failing messages are received until their "
        "retention runs out, and are then lost.",
        "Create that queue again, or point the redrive policy at another one.",
    )


def dead_letter_queue_elsewhere(queue: QueueSettings, _: Queues) -> Problem | None:
    """A dead-letter queue must be in the account and region of its source."""
    target = _target(queue)
    if target is None:
        return None
    there, here = place_of_arn(target), place_of_arn(queue.arn or "")
    if there.scope is None or here.scope is None or there.scope == here.scope:
        return None
    return Problem(
        "critical",
        f"Its dead-letter queue {there.queue} is in {there.scope}, the queue itself in {here.scope}: SQS moves nothing to "
        "another account or region.",
        "Use a dead-letter queue in the same account and region.",
    )


def redrive_type_mismatch(queue: QueueSettings, queues: Queues) -> Problem | None:
    """A FIFO queue needs a FIFO dead-letter queue, a standard queue a standard one."""
    target = _target(queue)
    if target is None:
        return None
    known = queues.dead_letter_queue_of(queue)
    if known is not None:
        name, kind = known.name, known.kind
    elif place_of_arn(target).scope is not None:
        # It is not among the examined queues; SQS itself ensures that the name shows the type.
        name = place_of_arn(target).queue
        kind = "fifo" if name.endswith(".fifo") else "standard"
    else:
        return None
    if kind == queue.kind:
        return None
    return Problem(
        "critical",
        f"The queue is {queue.kind} but its dead-letter queue {name} is {kind}: no message can be moved.",
        f"Create a {queue.kind} dead-letter queue and point the redrive policy at it.",
    )


def redrive_not_allowed(queue: QueueSettings, queues: Queues) -> Problem | None:
    """The dead-letter queue's redrive allow policy must let the queue in."""
    other = queues.dead_letter_queue_of(queue)
    allow = other.redrive_allow if other is not None else None
    if other is None or allow is None or allow.permission == "allowAll":
        return None
    if allow.permission == "byQueue" and (allow.sources is None or queue.name in allow.sources):
        return None
    return Problem(
        "critical",
        f"Its dead-letter queue {other.name} does not accept its messages (redrive allow policy {allow.permission}): "
        "failing messages stay where they are.",
        f"Add {queue.name} to the redrive allow policy of {other.name}, which takes ten queues, or set it to allowAll.",
    )


def dead_letter_retention(queue: QueueSettings, queues: Queues) -> Problem | None:
    """A standard dead letter keeps its send time; the retention of a FIFO one starts again."""
    other = queues.dead_letter_queue_of(queue)
    if other is None or queue.kind == "fifo" or queue.retention_s is None or other.retention_s is None:
        return None
    if other.retention_s > queue.retention_s:
        return None
    return Problem(
        "warning",
        f"Its dead-letter queue {other.name} keeps messages {duration(other.retention_s)}, no longer than the queue itself "
        f"({duration(queue.retention_s)}). A dead letter keeps the time it was sent, so one that has waited long expires "
        "soon after the move.",
        f"Raise the retention of {other.name}, ideally to 14 days."
        if other.retention_s < MAX_RETENTION_S
        else f"Shorten the retention of {queue.name}: that of {other.name} cannot be longer.",
    )


def single_receive(queue: QueueSettings, _: Queues) -> Problem | None:
    """maxReceiveCount 1: the first receive is the last."""
    if queue.redrive is None or queue.redrive.max_receive_count != 1:
        return None
    return Problem(
        "warning",
        "Messages are dead-lettered after a single receive: a crash, a deployment or a poll in the console is enough.",
        "Set maxReceiveCount to 3 or more; with a Lambda function to 5 or more.",
    )


def short_visibility(queue: QueueSettings, _: Queues) -> Problem | None:
    """Processing outlasts the visibility timeout."""
    usual, visibility = queue.usual_processing_s, queue.visibility_timeout_s
    if usual is None or visibility is None or visibility >= usual:
        return None
    return Problem(
        "warning",
        f"A message is usually worked on for {duration(usual)} but is visible again after {duration(visibility)}: it is "
        "delivered twice, and each delivery counts towards maxReceiveCount.",
        f"Set the visibility timeout to {duration(_visibility(usual))}, or extend it while working.",
    )


def lambda_visibility(queue: QueueSettings, _: Queues) -> Problem | None:
    """A throttled or retried function needs six times its timeout."""
    visibility = queue.visibility_timeout_s
    slow = [(c.timeout_s, c) for c in queue.consumers if c.timeout_s is not None]
    if visibility is None or not slow:
        return None
    timeout_s, consumer = max(slow, key=lambda pair: pair[0])
    if visibility >= _visibility(timeout_s):
        return None
    fix = f"Set the visibility timeout to {duration(_visibility(timeout_s, consumer.batching_window_s))} or more."
    if visibility < timeout_s:
        return Problem(
            "critical",
            f"The visibility timeout ({duration(visibility)}) is shorter than the timeout of Lambda function "
            f"{consumer.function} ({duration(timeout_s)}): a message is delivered again while the function works on it.",
            fix,
        )
    return Problem(
        "warning",
        f"The visibility timeout ({duration(visibility)}) is less than six times the timeout of Lambda function "
        f"{consumer.function} ({duration(timeout_s)}): while the function is throttled, messages use up their receives.",
        fix,
    )


def lambda_batching_window(queue: QueueSettings, queues: Queues) -> Problem | None:
    """The batching window also uses up visibility timeout."""
    visibility = queue.visibility_timeout_s
    if visibility is None or lambda_visibility(queue, queues) is not None:
        return None
    for consumer in queue.consumers:
        if not consumer.timeout_s or not consumer.batching_window_s:
            continue
        wanted = _visibility(consumer.timeout_s, consumer.batching_window_s)
        if visibility < wanted:
            return Problem(
                "warning",
                f"Lambda gathers batches for {consumer.function} for up to {duration(consumer.batching_window_s)}, during which "
                f"messages are in flight: the visibility timeout ({duration(visibility)}) leaves less than six timeouts of the "
                f"function ({duration(consumer.timeout_s)}) after that.",
                f"Set the visibility timeout to {duration(wanted)} or more, or shorten the batching window.",
            )
    return None


def whole_batch_fails(queue: QueueSettings, _: Queues) -> Problem | None:
    """Without ReportBatchItemFailures one bad message causes its whole batch to be redelivered."""
    for consumer in queue.consumers:
        size = consumer.batch_size or 1
        if consumer.reports_item_failures is False and size > 1:
            return Problem(
                "info",
                f"An error in Lambda function {consumer.function} fails its whole batch of up to {size}: the good messages in "
                "it are delivered again and use up receives.",
                "Report failures by message (FunctionResponseTypes: ReportBatchItemFailures), or set the batch size to 1.",
            )
    return None


def fifo_throughput(queue: QueueSettings, _: Queues) -> Problem | None:
    """High throughput needs two settings; one alone has no effect."""
    if queue.kind != "fifo" or queue.throughput_limit is None or queue.throughput_limit == "perMessageGroupId":
        return None
    if queue.deduplication_scope == "messageGroup":
        return Problem(
            "warning",
            "It deduplicates by message group, but its throughput limit is still that of the whole queue: 300 calls a second "
            "for each operation.",
            "Set FifoThroughputLimit to perMessageGroupId.",
        )
    return Problem(
        "info",
        "Its throughput limit is that of the whole queue: 300 calls a second for each operation, however many groups it has.",
        "If it needs more, set DeduplicationScope to messageGroup and FifoThroughputLimit to perMessageGroupId.",
    )


def redrive_failed(queue: QueueSettings, _: Queues) -> Problem | None:
    """The last attempt to move its messages back failed."""
    task = queue.move_task
    if task is None or task.status != "FAILED":
        return None
    of = f" of {task.to_move:,}" if task.to_move is not None else ""
    moved = f" after {task.moved:,}{of} messages" if task.moved is not None else ""
    reason = f": {task.failure_reason}" if task.failure_reason else ""
    return Problem(
        "warning",
        f"The last redrive of its messages failed{moved}{reason}.",
        "Remove the reason, then start the redrive again.",
    )


def dead_letters_waiting(queue: QueueSettings, queues: Queues) -> Problem | None:
    """Failed messages should be inspected before they are lost."""
    by_name = queue.redrive is None and queue.looks_like_dead_letters
    if not queue.messages or not (queues.is_dead_letter_queue(queue) or by_name):
        return None
    kept = f"; its retention is {duration(queue.retention_s)}" if queue.retention_s is not None else ""
    return Problem(
        "warning",
        f"{queue.messages:,} dead letter{'s wait' if queue.messages > 1 else ' waits'} in it{kept}.",
        "Find out why they failed, then redrive or delete them.",
    )


def unencrypted(queue: QueueSettings, _: Queues) -> Problem | None:
    """Neither SSE-SQS nor SSE-KMS."""
    if queue.encrypted is not False:
        return None
    return Problem(
        "warning",
        "Its messages are stored unencrypted.",
        "Set SqsManagedSseEnabled to true, or KmsMasterKeyId to a key of yours.",
    )


def _target(queue: QueueSettings) -> str | None:
    return queue.redrive.target if queue.redrive is not None else None


def _visibility(timeout_s: float, window_s: float = 0.0) -> float:
    return min(LAMBDA_VISIBILITY_FACTOR * timeout_s + window_s, MAX_VISIBILITY_S)


def duration(seconds: float) -> str:
    """Format as `45 s`, `12 min`, `36 h`, `14 days`: the largest unit without a remainder, if there are at least three of it."""
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 3 * unit and seconds % unit == 0:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:g} s"


RULES: Final[dict[str, Rule]] = {
    "dead_letter_queue_missing": dead_letter_queue_missing,
    "dead_letter_queue_elsewhere": dead_letter_queue_elsewhere,
    "redrive_type_mismatch": redrive_type_mismatch,
    "allow_policy": redrive_not_allowed,
    "no_dead_letter_queue": no_dead_letter_queue,
    "dead_letter_retention": dead_letter_retention,
    "single_receive": single_receive,
    "short_visibility": short_visibility,
    "lambda_visibility": lambda_visibility,
    "lambda_batching_window": lambda_batching_window,
    "whole_batch_fails": whole_batch_fails,
    "fifo_throughput": fifo_throughput,
    "redrive_failed": redrive_failed,
    "dead_letters_waiting": dead_letters_waiting,
    "unencrypted": unencrypted,
}
"""Name in findings → rule. A rule that the running job also judges has the same name there."""
