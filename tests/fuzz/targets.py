"""Fuzzing targets: bytes lead to a result or a documented refusal, never to anything else.

Each target takes one input and raises `AssertionError` (or an exception the code must not raise) when something is wrong.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from sinks.http.budget import Share
from sinks.http.errors import ApiError
from sinks.http.ingest import _take
from sinks.http.settings import IngestSettings
from sources.wire.decode import decode_records
from sources.wire.encode import encode_arrow
from sources.wire.event_json import load_json
from sources.wire.invalid import RAW_LIMIT, RefusalError
from sources.wire.lines import split_lines
from sources.wire.scan import scan
from streaming.checkpoint.state_files import StateDamaged, forget_verified_files, state_keeper
from streaming.config.errors import ConfigError, ConfigErrors
from streaming.config.load import load_config
from streaming.core.columns import UnreadableBlob
from streaming.core.state.state import Packed, ShardState
from streaming.spool.cut import cut
from tests.streaming.spark.packets import T0, event, ndjson

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Target:
    """A function of bytes, and its initial inputs."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]


def decode(content: bytes) -> None:
    """Decode records of any kind: every event is valid or counted as invalid, and a record never affects its neighbours."""
    good = ndjson(event("sent", "good", T0, sent_at=T0))
    decoded = decode_records([good, content, good])
    ids = decoded.events.column("message_id").to_pylist()
    assert ids.count("good") >= 2, "a record spoiled its neighbours"
    assert decoded.refused.total() >= len(decoded.invalid)
    for invalid in decoded.invalid:
        assert len(invalid.raw) <= RAW_LIMIT
        assert invalid.record == 1, f"a good record was refused: {invalid}"


def scan_lines(content: bytes) -> None:
    """Scan lines in C: the scan agrees with the JSON parser or leaves the line to it."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return
    lines = split_lines(content, np.zeros(1, np.int64))
    scanned = scan(lines) if len(lines) else None
    if scanned is None:
        return
    read, table = scanned
    kinds, ids = table.column("type").to_pylist(), table.column("message_id").to_pylist()
    for row, line in enumerate(np.flatnonzero(read).tolist()):
        try:
            reported = load_json(lines.raw(line))
        except RefusalError as refusal:
            raise AssertionError(f"the scan read what is not JSON ({refusal.detail}): {lines.raw(line)!r}") from refusal
        assert (kinds[row], ids[row]) == (reported.get("type"), reported.get("message_id")), lines.raw(line)


def state_head(content: bytes) -> None:
    """Read the head of a state, as from a file whose checksum was not checked: it is read or refused."""
    try:
        ShardState.unpack(Packed(content, {}))
    except UnreadableBlob:
        return


def state_file(content: bytes) -> None:
    """Read a state file: one with changed bytes is never accepted."""
    kept, path, written = _kept()
    path.write_bytes(content)
    forget_verified_files()
    try:
        head = state_keeper(str(path.parents[1])).fetch(kept).head
    except StateDamaged:
        return
    assert bytes(head) == written


def config(content: bytes) -> None:
    """Load a configuration: it is accepted, or refused with the place and the fix."""
    path = _scratch() / "queuewatch.yaml"
    path.write_bytes(content)
    with contextlib.suppress(ConfigError, ConfigErrors):
        load_config(path, {})


def ingest(content: bytes) -> None:
    """Ingest a body: it is staged with every accepted event, or refused with a status."""
    stage = _Stage()
    settings = IngestSettings(stage, max_body_bytes=1 << 20, max_events=10_000)
    for gzipped in (False, True):
        stage.bodies.clear()
        try:
            taken = _take(content, gzipped, settings, _share())
        except ApiError:
            assert not stage.bodies
            continue
        ((body, kind),) = stage.bodies
        for shared in (body, b"{}\n" + body, body + b"\n{}") if kind == "ndjson" else (body,):
            again = decode_records([shared])
            assert len(again.events) == taken.accepted, "what was staged is not what was accepted"


def spool(content: bytes) -> None:
    """Cut a file: its pieces cover it, in order."""
    at = 0
    for piece in cut(io.BytesIO(content), "f", 0, len(content)):
        assert piece.start >= at
        assert piece.end > piece.start or not content
        at = piece.end
    assert at == len(content)


class _Stage:
    def __init__(self) -> None:
        self.bodies: list[tuple[bytes, str]] = []

    def put(self, body: bytes, kind: str) -> None:
        """Record the body."""
        self.bodies.append((body, kind))


def _share() -> Share:
    class Unlimited:
        def take(self, size: int) -> None:
            assert size <= 64 << 20, "more was inflated at once than is allowed"

    return Unlimited()  # type: ignore[return-value] # only `take` is called


_local = threading.local()


def _scratch() -> Path:
    if not hasattr(_local, "folder"):
        _local.folder = tempfile.TemporaryDirectory(prefix="queuewatch-fuzz-")
    return Path(_local.folder.name)


@lru_cache
def _kept() -> tuple[bytes, Path, bytes]:
    keeper = state_keeper(str(_scratch()))
    head = ShardState.empty().pack().head
    kept = keeper.keep(0, Packed(head, {}))
    return kept, next((_scratch() / "shards").glob("*.state")), bytes(head)


def _records() -> list[bytes]:
    events = [event("received", f"m{n}", T0, sent_at=T0, receive_count=n, group="g", consumer="c") for n in range(3)]
    state = event("queue_state", at=T0, attributes={"visible": 3, "kind": "fifo", "tags": {"a": "b"}})
    lines = ndjson(*events, state)
    return [lines, json.dumps([*events, state]).encode(), encode_arrow(events), json.dumps(state, indent=1).encode()]


def _heads() -> list[bytes]:
    return [bytes(ShardState.empty().pack().head)]


TARGETS: Final[dict[str, Target]] = {
    "decode": Target(decode, _records),
    "scan": Target(scan_lines, lambda: _records()[:1]),
    "state_head": Target(state_head, _heads),
    "state_file": Target(state_file, lambda: [_kept()[2]]),
    "config": Target(config, lambda: [(ROOT / "deploy" / "queuewatch.yaml").read_bytes(), b"source: {spool: {folder: x}}\n"]),
    "ingest": Target(ingest, lambda: [*_records(), gzip.compress(_records()[0])]),
    "spool": Target(spool, _records),
}
