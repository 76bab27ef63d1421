"""The Query protocol: forms are parsed, and responses changed without touching the rest."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from queuewatch.proxy import query_protocol as query
from queuewatch.proxy.requested_attributes import RequestedAttributes

RECEIVED = (
    '<?xml version="1.0"?><ReceiveMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><ReceiveMessageResult>'
    "<Message><MessageId>m-1</MessageId><ReceiptHandle>h==</ReceiptHandle><MD5OfBody>d</MD5OfBody>"
    "<Body>line&#xD;\né &lt;Attribute&gt;&amp;</Body>"
    "<Attribute><Name>SentTimestamp</Name><Value>1</Value></Attribute>"
    "<Attribute><Name>ApproximateReceiveCount</Name><Value>2</Value></Attribute>"
    "<MD5OfMessageAttributes>e</MD5OfMessageAttributes>"
    "<MessageAttribute><Name>order</Name><Value><StringValue>17</StringValue><DataType>String</DataType></Value>"
    "</MessageAttribute></Message>"
    "</ReceiveMessageResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></ReceiveMessageResponse>"
).encode()


@pytest.mark.parametrize(
    ("form", "params"),
    [
        ({"Action": "DeleteMessage", "ReceiptHandle": "a+b=="}, {"Action": "DeleteMessage", "ReceiptHandle": "a+b=="}),
        ({"AttributeName.1": "All"}, {"AttributeNames": ["All"]}),
        ({"AttributeName": "SenderId"}, {"AttributeNames": ["SenderId"]}),
        ({"MessageSystemAttributeName.1": "All"}, {"MessageSystemAttributeNames": ["All"]}),
        (
            {"DeleteMessageBatchRequestEntry.1.Id": "x", "DeleteMessageBatchRequestEntry.1.ReceiptHandle": "h"},
            {"Entries": [{"Id": "x", "ReceiptHandle": "h"}]},
        ),
        ({"MessageBody": "secret", "DelaySeconds": "3"}, {"DelaySeconds": "3"}),
        (
            {"MessageAttribute.1.Name": "order", "MessageAttribute.1.Value.StringValue": "17"},
            {"MessageAttributes": {"order": {"StringValue": "17"}}},
        ),
    ],
)
def test_a_form_is_parsed_into_the_parameters_of_the_json_protocol(form: dict[str, str], params: dict[str, object]) -> None:
    """Lists and batch entries are numbered in forms; message bodies are left out."""
    assert query.parse(urlencode(form).encode()) == params


@pytest.mark.parametrize(
    ("form", "more"),
    [
        ({}, b"&AttributeName.1=All"),
        ({"AttributeName.1": "SenderId"}, b"&AttributeName.2=All"),
        ({"MessageSystemAttributeName.1": "SenderId"}, b"&MessageSystemAttributeName.2=All"),
        ({"AttributeName.2": "SenderId", "AttributeName.3": "SentTimestamp"}, b"&AttributeName.4=All"),
        ({"AttributeName.1": "All"}, b""),
    ],
)
def test_all_system_attributes_are_requested(form: dict[str, str], more: bytes) -> None:
    """`All` is appended to the attributes that the application requests, with the same parameter name and the next number."""
    body = urlencode({"Action": "ReceiveMessage", **form}).encode()
    asking, _ = query.asking_for_all(body, query.parse(body), None)
    assert asking == body + more


@pytest.mark.parametrize("kept", [(), ("SentTimestamp",), ("ApproximateReceiveCount", "SentTimestamp")])
@pytest.mark.parametrize("hide_custom", [False, True])
def test_only_attributes_that_were_not_requested_are_removed(kept: tuple[str, ...], hide_custom: bool) -> None:
    """The body's carriage return, entities and text that looks like an attribute stay byte for byte."""
    answer = query.parse_answer("ReceiveMessage", RECEIVED)
    [message] = answer["Messages"]
    assert message["Attributes"] == {"SentTimestamp": "1", "ApproximateReceiveCount": "2"}
    assert message["MessageAttributes"] == {"order": {"StringValue": "17"}}
    expected = RECEIVED.decode()
    for name, value in (("SentTimestamp", 1), ("ApproximateReceiveCount", 2)):
        if name not in kept:
            expected = expected.replace(f"<Attribute><Name>{name}</Name><Value>{value}</Value></Attribute>", "")
    if hide_custom:
        start, end = expected.index("<MD5OfMessageAttributes>"), expected.index("</Message>")
        expected = expected[:start] + expected[end:]
    asked = RequestedAttributes(frozenset(kept), hide_custom)
    assert query.strip(RECEIVED, answer, asked).decode() == expected


def test_replacing_the_queue_url_leaves_the_rest_of_the_form_alone() -> None:
    """A body that contains a queue URL is not touched."""
    body = b"Action=SendMessage&MessageBody=QueueUrl%3Dhttp%3A%2F%2Fx&QueueUrl=http%3A%2F%2Fold%2F1%2Fq&Version=2012-11-05"
    changed = query.with_queue_url(body, "https://new/1/q")
    assert changed == body.replace(b"QueueUrl=http%3A%2F%2Fold%2F1%2Fq", b"QueueUrl=https%3A%2F%2Fnew%2F1%2Fq")


def test_an_answer_that_is_not_xml_is_an_error_for_telemetry_alone() -> None:
    """Parsing raises `ValueError`, which the handler counts."""
    for operation in ("ReceiveMessage", "SendMessage"):
        with pytest.raises(ValueError, match="column"):
            query.parse_answer(operation, b"<broken")
