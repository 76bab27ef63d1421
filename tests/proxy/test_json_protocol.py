"""The JSON protocol: queue URLs are exchanged and answers stripped, everything else stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuewatch.proxy import json_protocol
from queuewatch.proxy.asking import Asked


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"QueueUrl": "http://old/1/q", "MessageBody": "a"}', b'{"QueueUrl": "http://new/1/q", "MessageBody": "a"}'),
        (b'{"QueueUrl":"http:\\/\\/old\\/1\\/q"}', b'{"QueueUrl":"http://new/1/q"}'),
        (
            b'{"MessageBody":"{\\"QueueUrl\\":\\"http://old\\"}","QueueUrl":"http://old/1/q"}',
            b'{"MessageBody":"{\\"QueueUrl\\":\\"http://old\\"}","QueueUrl":"http://new/1/q"}',
        ),
        (b'{"MessageBody":"\\\\\\"QueueUrl","QueueUrl":"x"}', b'{"MessageBody":"\\\\\\"QueueUrl","QueueUrl":"http://new/1/q"}'),
    ],
)
def test_another_queue_url_leaves_the_rest_alone(body: bytes, changed: bytes) -> None:
    """Also when a message's body looks like a call itself, or slashes are escaped."""
    assert json_protocol.with_queue_url(body, "http://new/1/q") == changed


@pytest.mark.parametrize(
    ("params", "asked_as", "kept"),
    [
        ({}, {"MessageSystemAttributeNames": ["All"]}, frozenset()),
        ({"AttributeNames": ["SenderId"]}, {"AttributeNames": ["SenderId", "All"]}, {"SenderId"}),
        (
            {"MessageSystemAttributeNames": ["SenderId"]},
            {"MessageSystemAttributeNames": ["SenderId", "All"]},
            {"SenderId"},
        ),
        ({"AttributeNames": ["All"]}, {"AttributeNames": ["All"]}, None),
    ],
)
def test_all_system_attributes_are_asked_for(params: dict[str, Any], asked_as: dict[str, Any], kept: Any) -> None:
    """In the words the application uses; nothing changes when it asks for all."""
    body, asked = json_protocol.asking_for_all(json.dumps(params).encode(), params, None)
    assert json.loads(body) == asked_as
    assert asked.system == kept


def test_half_a_surrogate_pair_survives() -> None:
    """JSON can carry it, UTF-8 cannot."""
    body = b'{"Messages":[{"Body":"\\ud83d","Attributes":{"SenderId":"x"}}]}'
    stripped = json_protocol.strip(body, json_protocol.parse(body), Asked(frozenset(), False))
    assert stripped == b'{"Messages":[{"Body":"\\ud83d"}]}'
