"""The attribute `redrive_task` of a dead-letter queue, as far as whoever starts the move task knows it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from queuewatch.places import place_of_arn


def started_task(params: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The task that StartMessageMoveTask has just started.

    When it started is SQS' to say, and with the queue identifies the task: the clock here would name another one.
    """
    task: dict[str, Any] = {"status": "RUNNING"}
    limit = params.get("MaxNumberOfMessagesPerSecond")
    if limit is not None:
        task["limit_per_s"] = int(limit)
    if params.get("DestinationArn"):
        task["to_queue"] = place_of_arn(params["DestinationArn"]).queue
    task_id = move_task_id(answer.get("TaskHandle"))
    if task_id is not None:
        task["task_id"] = task_id
    return task


def move_task_id(handle: object) -> str | None:
    """The id in a task's handle, which is JSON in base64. SQS gives a handle only while the task runs."""
    try:
        named = json.loads(base64.b64decode(str(handle), validate=True)) if handle else None
    except ValueError:
        return None
    found = named.get("taskId") if isinstance(named, dict) else None
    return str(found) if found else None
