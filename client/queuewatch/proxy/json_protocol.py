"""The JSON protocol of SQS: `X-Amz-Target: AmazonSQS.<operation>`, JSON in and out."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from queuewatch.proxy.asking import Asked, ask_for_all

CONTENT_TYPE: Final = "application/x-amz-json-1.0"

# Inside a JSON string every quote has a backslash before it: what matches is a member's name and value.
_QUEUE_URL: Final = re.compile(rb'(?<!\\)"QueueUrl"(\s*:\s*)"(?:[^"\\]|\\.)*"')
_URL_LISTS: Final = ("QueueUrls", "queueUrls")
_MODERN: Final = "MessageSystemAttributeNames"
_DEPRECATED: Final = "AttributeNames"


def parse(body: bytes) -> dict[str, Any]:
    """The parameters of a call. Raises `ValueError`."""
    params = json.loads(body or b"{}")
    if not isinstance(params, dict):
        raise ValueError("not a JSON object")
    return params


def with_queue_url(body: bytes, url: str) -> bytes:
    """The body with another queue URL, otherwise byte for byte the same."""
    value = json.dumps(url).encode()
    return _QUEUE_URL.sub(lambda found: b'"QueueUrl"' + found[1] + value, body, count=1)


def asking_for_all(body: bytes, params: Mapping[str, Any], lineage_attribute: str | None) -> tuple[bytes, Asked]:
    """A ReceiveMessage that asks for what telemetry needs, and what the application itself asked for."""
    asked = ask_for_all(params, lineage_attribute)
    if not asked.changes:
        return body, asked
    changed = dict(params)
    if asked.system is not None:
        name = _DEPRECATED if _DEPRECATED in params and _MODERN not in params else _MODERN
        changed[name] = [*(params.get(name) or ()), "All"]
    if asked.hide_message_attributes:
        changed["MessageAttributeNames"] = [lineage_attribute]
    return _encode(changed), asked


def parse_answer(_operation: str, body: bytes) -> dict[str, Any]:
    """The answer to a call. Raises `ValueError`."""
    return parse(body)


def strip(body: bytes, answer: Mapping[str, Any], asked: Asked) -> bytes:
    """The answer to a ReceiveMessage without what the application did not ask for."""
    messages = answer.get("Messages")
    if not asked.changes or not messages:
        return body
    return _encode({**answer, "Messages": [_stripped(message, asked) for message in messages]})


def _stripped(message: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    kept = dict(message)
    if asked.system is not None and "Attributes" in kept:
        attributes = {name: value for name, value in kept.pop("Attributes").items() if name in asked.system}
        if attributes:
            kept["Attributes"] = attributes
    if asked.hide_message_attributes:
        kept.pop("MessageAttributes", None)
        kept.pop("MD5OfMessageAttributes", None)
    return kept


def with_queue_urls(body: bytes, change: Callable[[str], str]) -> bytes:
    """An answer with other queue URLs."""
    answer = parse(body)
    if isinstance(answer.get("QueueUrl"), str):
        answer["QueueUrl"] = change(answer["QueueUrl"])
    for name in _URL_LISTS:
        if isinstance(answer.get(name), list):
            answer[name] = [change(url) for url in answer[name]]
    return _encode(answer)


def error(code: str, message: str, *, sender: bool) -> tuple[bytes, list[tuple[str, str]]]:
    """Body and headers of an error as SQS would word it."""
    body = _encode({"__type": f"com.amazonaws.sqs#{code}", "message": message})
    fault = "Sender" if sender else "Receiver"
    return body, [
        ("Content-Type", CONTENT_TYPE),
        ("x-amzn-RequestId", str(uuid.uuid4())),
        ("x-amzn-query-error", f"{code};{fault}"),
    ]


def _encode(value: object) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can carry only escaped
        return json.dumps(value, separators=(",", ":")).encode()
