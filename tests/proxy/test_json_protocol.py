"""The JSON protocol: queue URLs are exchanged and answers stripped, everything else stays as it is."""

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
    stripped = json_protocol.strip(body, json_protocol.parse(body), RequestedAttributes(frozenset(), False))
    assert stripped == b'{"Messages":[{"Body":"\\ud83d"}]}'


@pytest.mark.parametrize(
    ("kept", "body", "stripped"),
    [
        ("", '{"Messages":[{"Attributes":{"SenderId":"x"},"Body":"\\u00e9"}]}', '{"Messages":[{"Body":"\\u00e9"}]}'),
        ("", '{"Messages": [{"Body": "b" , "Attributes" : {"SenderId": "x"} }]}', '{"Messages": [{"Body": "b"  }]}'),
        ("", '{"Messages":[{"Attributes":{}},{"Body":"b"}],"x":1}', '{"Messages":[{},{"Body":"b"}],"x":1}'),
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
def test_attributes_are_cut_out_and_every_other_byte_stays(kept: str, body: str, stripped: str) -> None:
    """Spaces and escapes of the answer are not written anew, and a message that quotes an answer is not touched."""
    raw = body.encode()
    asked = RequestedAttributes(frozenset(kept), False)
    assert json_protocol.strip(raw, json_protocol.parse(raw), asked) == stripped.encode()


def test_a_custom_attribute_called_attributes_is_not_mistaken_for_them() -> None:
    """It may come before the system attributes, or alone."""
    custom = {"Attributes": {"StringValue": "s", "DataType": "String"}}
    answer = {"Messages": [{"MessageAttributes": custom, "Attributes": {"SenderId": "x"}}, {"MessageAttributes": custom}]}
    stripped = json_protocol.strip(json.dumps(answer).encode(), answer, RequestedAttributes(frozenset(), False))
    assert json.loads(stripped) == {"Messages": [{"MessageAttributes": custom}, {"MessageAttributes": custom}]}
