"""SQS attributes are converted to the contract's names and units."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from queuewatch.move_tasks import started_task
from sources.sqs.attributes import queue_attributes
from sources.sqs.move_tasks import Progress, latest, redrive_task

T = 1_760_000_000_000


def test_a_standard_queue_with_all_attributes() -> None:
    """Counts, timeouts, retention, dead-letter queue and times are converted."""
    answer = {
        "QueueArn": "arn:aws:sqs:eu-west-1:1:orders",
        "ApproximateNumberOfMessages": "7",
        "ApproximateNumberOfMessagesNotVisible": "2",
        "ApproximateNumberOfMessagesDelayed": "1",
        "VisibilityTimeout": "120",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "20",
        "MaximumMessageSize": "262144",
        "CreatedTimestamp": "1760000000",
        "LastModifiedTimestamp": "1760000001.5",
        "RedrivePolicy": '{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:orders-dlq","maxReceiveCount":"6"}',
    }
    assert queue_attributes(answer) == {
        "kind": "standard",
        "visible": 7,
        "in_flight": 2,
        "delayed": 1,
        "visibility_timeout_s": 120,
        "retention_s": 345600,
        "delay_s": 0,
        "receive_wait_s": 20,
        "max_message_bytes": 262144,
        "created_at": T,
        "modified_at": T + 1000,
        "dead_letter_queue": "orders-dlq",
        "max_receive_count": 6,
        "redrive_allow_policy": None,
    }


@pytest.mark.parametrize("text", ["", "many", "inf", "nan"])
def test_a_count_that_is_no_number_is_left_out(text: str) -> None:
    """Stand-ins for SQS may write anything."""
    assert "visible" not in queue_attributes({"ApproximateNumberOfMessages": text})


def test_a_fifo_dead_letter_queue_is_converted() -> None:
    """The redrive allow policy and the deduplication settings are converted."""
    answer = {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
        "RedriveAllowPolicy": '{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:eu-west-1:1:a.fifo"]}',
    }
    assert queue_attributes(answer) == {
        "kind": "fifo",
        "dead_letter_queue": None,
        "max_receive_count": None,
        "redrive_allow_policy": {"permission": "byQueue", "sources": ["arn:aws:sqs:eu-west-1:1:a.fifo"]},
        "content_based_deduplication": False,
        "deduplication_scope": "messageGroup",
        "throughput_limit": "perMessageGroupId",
    }


@pytest.mark.parametrize("policy", ["", "{", "[]", '{"deadLetterTargetArn":""}'])
def test_an_unreadable_policy_is_none(policy: str) -> None:
    """Local SQS services return various values for a removed policy."""
    assert queue_attributes({"RedrivePolicy": policy})["dead_letter_queue"] is None


def task(**fields: Any) -> dict[str, Any]:
    """Return a running task as SQS reports it."""
    base = {
        "Status": "RUNNING",
        "SourceArn": "arn:aws:sqs:eu-west-1:1:orders-dlq",
        "DestinationArn": "arn:aws:sqs:eu-west-1:1:orders",
        "ApproximateNumberOfMessagesMoved": 100,
        "ApproximateNumberOfMessagesToMove": 400,
        "MaxNumberOfMessagesPerSecond": 20,
        "StartedTimestamp": T,
    }
    return base | fields


TASKS = [
    # task, seconds since its start, previous progress, rate, time left
    (task(), 10, None, 10.0, 30),
    (task(), 10, Progress(T, T + 5_000, 50, T + 5_000), 10.0, 30),
    (task(), 10, Progress(T, T + 8_000, 60, T + 8_000), 20.0, 15),
    (task(), 10, Progress(T - 1, T + 8_000, 60, T + 8_000), 10.0, 30),  # of another task
    (task(ApproximateNumberOfMessagesMoved=0), 10, None, 0.0, 20),  # nothing moved: its own rate limit is used
    (task(ApproximateNumberOfMessagesMoved=0, MaxNumberOfMessagesPerSecond=None), 10, None, 0.0, None),
    (task(ApproximateNumberOfMessagesMoved=410), 10, None, 41.0, 0),  # approximate counts may contradict each other
    (task(ApproximateNumberOfMessagesToMove=None), 10, None, 10.0, None),
    (task(), 0, None, None, 15),
]


@pytest.mark.parametrize(("reported", "after_s", "before", "rate", "left"), TASKS)
def test_a_running_task_has_a_rate_and_time_left(
    reported: dict[str, Any], after_s: int, before: Progress | None, rate: float | None, left: int | None
) -> None:
    """The recent rate takes precedence over the task's rate limit."""
    found, progress = redrive_task(reported, T + after_s * 1000, before)
    assert (found.get("rate_per_s"), found.get("time_left_s")) == (rate, left)
    assert found["status"] == "RUNNING"
    assert found["to_queue"] == "orders"
    at = T + after_s * 1000
    assert progress == Progress(T, at, reported["ApproximateNumberOfMessagesMoved"], at)


def test_a_stalled_task_reports_when_it_last_progressed() -> None:
    """This separates a slow task from a stuck one; the next task starts over."""
    progress: Progress | None = None
    looks = [(0, 0, 0), (60, 100, 60), (120, 100, 60), (180, 100, 60), (240, 101, 240)]
    for after_s, moved, since_s in looks:
        found, progress = redrive_task(task(ApproximateNumberOfMessagesMoved=moved), T + after_s * 1000, progress)
        assert found["progressed_at"] == T + since_s * 1000
    found, _ = redrive_task(task(StartedTimestamp=T + 250_000, ApproximateNumberOfMessagesMoved=0), T + 300_000, progress)
    assert found["progressed_at"] == T + 300_000


@pytest.mark.parametrize(
    ("handle", "task_id"),
    [
        (base64.b64encode(b'{"taskId":"7b-1","sourceArn":"arn:aws:sqs:eu-west-1:1:orders-dlq"}').decode(), "7b-1"),
        (base64.b64encode(b"[]").decode(), None),
        ("no base64!", None),
        (None, None),
    ],
)
def test_a_task_s_id_is_in_its_handle(handle: str | None, task_id: str | None) -> None:
    """SQS returns a handle only while the task runs."""
    found, _ = redrive_task(task(TaskHandle=handle), T, None)
    assert found.get("task_id") == task_id


def test_an_application_and_the_collector_report_the_same_task_alike() -> None:
    """The application reports a subset of the same attributes; the start time comes from SQS, through the collector."""
    handle = base64.b64encode(b'{"taskId":"7b-1"}').decode()
    destination = "arn:aws:sqs:eu-west-1:1:orders"
    params = {"SourceArn": "arn:aws:sqs:eu-west-1:1:dlq", "DestinationArn": destination, "MaxNumberOfMessagesPerSecond": "20"}
    started = started_task(params, {"TaskHandle": handle})
    followed, _ = redrive_task(task(TaskHandle=handle, DestinationArn=destination), T + 1000, None)
    assert started == {"status": "RUNNING", "limit_per_s": 20, "to_queue": "orders", "task_id": "7b-1"}
    assert started.items() <= followed.items()
    assert started_task({"SourceArn": "arn:aws:sqs:eu-west-1:1:dlq"}, {}) == {"status": "RUNNING"}


def test_a_finished_task_reports_its_outcome() -> None:
    """Its progress is no longer tracked."""
    reported = task(Status="FAILED", FailureReason="AccessDenied", ApproximateNumberOfMessagesMoved=7)
    found, progress = redrive_task(reported, T + 1000, Progress(T, T, 0, T))
    assert found == {
        "status": "FAILED",
        "moved": 7,
        "to_move": 400,
        "limit_per_s": 20,
        "started_at": T,
        "to_queue": "orders",
        "failure_reason": "AccessDenied",
    }
    assert progress is None


def test_the_latest_task_is_selected() -> None:
    """The order of SQS's answer does not matter."""
    assert latest([task(StartedTimestamp=1), task(StartedTimestamp=3), task(StartedTimestamp=2)]) == task(StartedTimestamp=3)
    assert latest([]) is None
