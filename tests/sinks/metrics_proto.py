"""Prometheus' protobuf format, parsed by the protobuf library from a definition of its messages.

The field numbers and types are those of `io/prometheus/client/metrics.proto` in github.com/prometheus/client_model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import decoder

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "io.prometheus.client"
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "LabelPair": {"name": (1, "string"), "value": (2, "string")},
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Bucket": {"cumulative_count": (1, "uint64"), "upper_bound": (2, "double")},
    "Histogram": {
        "sample_count": (1, "uint64"),
        "sample_sum": (2, "double"),
        "bucket": (3, "repeated Bucket"),
        "schema": (5, "sint32"),
        "zero_threshold": (6, "double"),
        "zero_count": (7, "uint64"),
        "positive_span": (12, "repeated BucketSpan"),
        "positive_delta": (13, "repeated sint64"),
    },
    "Metric": {"label": (1, "repeated LabelPair"), "histogram": (7, "Histogram")},
    "MetricFamily": {"name": (1, "string"), "help": (2, "string"), "type": (3, "int32"), "metric": (4, "repeated Metric")},
}
HISTOGRAM = 4


def _family_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, described) in fields.items():
            kind = described.removeprefix("repeated ")
            field = message.field.add(name=field_name, number=number)
            field.label = _Field.LABEL_REPEATED if kind != described else _Field.LABEL_OPTIONAL
            if kind in _MESSAGES:
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = getattr(_Field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.MetricFamily"))


_MetricFamily = _family_class()


def families(body: bytes) -> Iterator[Any]:
    """Yield the MetricFamily messages of a body, each with its length before it. Every field must be a known one."""
    at = 0
    while at < len(body):
        size, at = decoder._DecodeVarint32(body, at)
        family = _MetricFamily.FromString(body[at : at + size])
        assert len(body) >= at + size
        assert family.ByteSize() == _known_size(family), "an unknown field"
        yield family
        at += size


def _known_size(family: Any) -> int:
    known = _MetricFamily()
    known.CopyFrom(family)
    known.DiscardUnknownFields()
    return int(known.ByteSize())


def buckets(histogram: Any) -> dict[int, int]:
    """Return the positive native buckets that have messages: index -> messages."""
    found, index, count = {}, 0, 0
    deltas = iter(histogram.positive_delta)
    for span in histogram.positive_span:
        index += span.offset
        for _ in range(span.length):
            count += next(deltas)
            found[index] = count
            index += 1
    assert next(deltas, None) is None, "more counts than buckets"
    return found
