"""The JSON protocol: queue URLs are replaced and responses stripped; every other byte stays the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuewatch.proxy import json_protocol
from queuewatch.proxy.requested_attributes import RequestedAttributes


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
def test_replacing_the_queue_url_changes_nothing_else(body: bytes, changed: bytes) -> None:
    """Only the queue URL changes, even if a message body looks like a call or slashes are escaped."""
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
def test_all_system_attributes_are_requested(params: dict[str, Any], asked_as: dict[str, Any], kept: Any) -> None:
    """The parameter is the one that the application uses; a request for all attributes is not changed."""
    body, asked = json_protocol.asking_for_all(json.dumps(params).encode(), params, None)
    assert json.loads(body) == asked_as
    assert asked.system == kept


def test_a_lone_surrogate_survives() -> None:
    """JSON can carry half of a surrogate pair; UTF-8 cannot."""
    body = b'{"Messages":[{"Body":"\\ud83d","Attributes":{"SenderId":"x"}}]}'
    stripped = json_protocol.strip(body, json_protocol.parse(body), RequestedAttributes(frozenset(), False))
    assert stripped == b'{"Messages":[{"Body":"\\ud83d"}]}'


@pytest.mark.parametrize(
    ("kept", "body", "stripped"),
    [
        ("", '{"Messages":[{"Attributes":{"SenderId":"x"},"Body":"\\u00e9"}]}', '{"Messages":[{"Body":"\\u00e9"}]}'),
        ("", '{"Messages": [{"Body": "b" , "Attributes" : {"SenderId": "x"} }]}', '{"Messages": [{"Body": "b"  }]}'),
        ("", '{"Messages":[{"Attributes":{}},{"Body":"b"}],"x":1}', '{"Messages":[{},{"Body":"b"}],"x":1}'),
        ("", '{"Messages":[{"Attributes":null},{"Attributes":{"A":"1"}}]}', '{"Messages":[{"Attributes":null},{}]}'),
        ("", '{"Messages":null}', '{"Messages":null}'),
        (
            "B",
            '{"Messages":[{"Attributes":{"A":"}\\"{","B":"\\\\"},"Body":"b"}]}',
            '{"Messages":[{"Attributes":{"B":"\\\\"},"Body":"b"}]}',
        ),
        (
            "A",
            '{"Messages":[{"Body":"\\"Attributes\\":{\\"A\\":\\"\\"}","Attributes":{"A":"1","B":"2"}},{"Attributes":{"B":"3"}}]}',
            '{"Messages":[{"Body":"\\"Attributes\\":{\\"A\\":\\"\\"}","Attributes":{"A":"1"}},{}]}',
        ),
    ],
)
def test_attributes_are_removed_and_every_other_byte_stays(kept: str, body: str, stripped: str) -> None:
    """Spaces and escapes of the response stay, and a message that quotes a response is not touched."""
    raw = body.encode()
    asked = RequestedAttributes(frozenset(kept), False)
    assert json_protocol.strip(raw, json_protocol.parse(raw), asked) == stripped.encode()


def test_a_message_attribute_called_attributes_is_kept() -> None:
    """The message attribute may come before the system attributes, or alone."""
    custom = {"Attributes": {"StringValue": "s", "DataType": "String"}}
    answer = {"Messages": [{"MessageAttributes": custom, "Attributes": {"SenderId": "x"}}, {"MessageAttributes": custom}]}
    stripped = json_protocol.strip(json.dumps(answer).encode(), answer, RequestedAttributes(frozenset(), False))
    assert json.loads(stripped) == {"Messages": [{"MessageAttributes": custom}, {"MessageAttributes": custom}]}
