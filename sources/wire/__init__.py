"""The wire format of telemetry: records in, columns out, and back."""

from sources.events import encode_ndjson
from sources.wire.decode import Decoded, decode_records
from sources.wire.encode import encode_arrow
from sources.wire.invalid import REASONS, InvalidEvent, Reason
from sources.wire.schema import WIRE_SCHEMA

__all__ = [
    "REASONS",
    "WIRE_SCHEMA",
    "Decoded",
    "InvalidEvent",
    "Reason",
    "decode_records",
    "encode_arrow",
    "encode_ndjson",
]
