"""A Lambda function without telemetry code: the message bodies name what it does with a batch."""

import os
import signal
import sys
import time
from typing import Any


class ChargeFailed(Exception):
    """An error of the application."""


def _failures(*ids: Any, key: str = "itemIdentifier") -> dict[str, Any]:
    return {"batchItemFailures": [{key: i} for i in ids]}


def _raise(error: BaseException) -> None:
    raise error


def _fail_late() -> None:
    time.sleep(0.9)
    raise ChargeFailed("late")


def _empty(event: Any) -> None:
    event["Records"].clear()


def _behaviours(event: Any, ids: list[str]) -> dict[str, Any]:
    return {
        "returns nothing": lambda: None,
        "returns an object": lambda: {"ok": True},
        "returns a string": lambda: "done",
        "returns an empty object": dict,
        "names none": _failures,
        "names null": lambda: {"batchItemFailures": None},
        "names the first": lambda: _failures(ids[0]),
        "names the last": lambda: _failures(ids[-1]),
        "names all": lambda: _failures(*ids),
        "names one twice": lambda: _failures(ids[1], ids[1]),
        "names a stranger": lambda: _failures("11111111-2222-3333-4444-555555555555"),
        "names a stranger beside one": lambda: _failures(ids[0], "11111111-2222-3333-4444-555555555555"),
        "names an empty id": lambda: _failures(""),
        "names a null id": lambda: _failures(None),
        "names a number": lambda: _failures(7),
        "wrong key": lambda: _failures(ids[0], key="messageId"),
        "plain strings": lambda: {"batchItemFailures": [ids[0]]},
        "not a list": lambda: {"batchItemFailures": "everything"},
        "raises": lambda: _raise(ChargeFailed("the card of Ada Lovelace was refused")),
        "raises without a message": lambda: _raise(ValueError()),
        "cannot be serialized": lambda: {"ok": object()},
        "too large": lambda: "x" * 6_300_000,
        "times out": lambda: time.sleep(60),
        "just in time": lambda: time.sleep(0.9),
        "fails just in time": _fail_late,
        "exits": lambda: sys.exit(3),
        "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "empties the event": lambda: _empty(event),
        "takes long": lambda: time.sleep(0.6),
    }


def handler(event: Any, _context: Any) -> Any:
    """Process one batch."""
    records = event.get("Records") or [{"body": "returns an object|0"}]
    bodies = [record.get("body", "returns an object|0") for record in records]
    ids = [record.get("messageId", "") for record in records]
    if bodies[0].startswith("stops at the first"):
        first = next(i for i, body in enumerate(bodies) if body.endswith("|bad"))
        return _failures(*ids[first:])
    if bodies[0].startswith("names bad ones"):
        return _failures(*(i for i, body in zip(ids, bodies, strict=True) if body.endswith("|bad")))
    return _behaviours(event, ids)[bodies[0].split("|")[0]]()


def context_of(event: Any, context: Any) -> Any:
    """Return what the runtime passed in, to compare with and without the wrapper."""
    return {"id": context.aws_request_id, "name": context.function_name, "event": event}


def nothing(_event: Any, _context: Any) -> None:
    """Do nothing: the fastest possible function."""
