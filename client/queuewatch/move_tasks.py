"""Builds the attribute `redrive_task` of a dead-letter queue from a StartMessageMoveTask call and its response."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from queuewatch.places import place_of_arn


def started_task(params: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task that StartMessageMoveTask has just started.

    The start time is left out: together with the queue it identifies the task, so it must come from SQS, not from the local
    clock.
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
    """Return the id in a task's handle, which is base64-encoded JSON. SQS returns a handle only while the task runs."""
    try:
        named = json.loads(base64.b64decode(str(handle), validate=True)) if handle else None
    except ValueError:
        return None
    found = named.get("taskId") if isinstance(named, dict) else None
    return str(found) if found else None
