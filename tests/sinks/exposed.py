"""A snapshot's exposition: as text, parsed, and as the catalogue's samples."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from prometheus_client import Metric as ParsedFamily
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text

from sinks.prometheus import Exposition
from streaming.judge.metrics import samples
from streaming.judge.snapshot import Snapshot
from tests.sinks.fakes import NOW_MS

parse_openmetrics: Callable[[str], Iterator[ParsedFamily]] = openmetrics_parser.text_string_to_metric_families

SampleKey = tuple[str, frozenset[tuple[str, str]]]


def exposition(snapshot: Snapshot, now_ms: int = NOW_MS, *, openmetrics: bool = False) -> str:
    return Exposition(process_metrics=False, version="9.9").render(snapshot, now_ms, openmetrics=openmetrics).decode()


def parsed(text: str, *, openmetrics: bool = False) -> dict[SampleKey, float]:
    families = parse_openmetrics(text) if openmetrics else parse_text(text)
    found: dict[SampleKey, float] = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{sample.name} {sample.labels} stands twice"
            found[key] = sample.value
    return {key: value for key, value in found.items() if key[0] != "queuewatch_build_info"}


def gunzipped(body: bytes) -> bytes:
    """Decompress the first gzip member only, as many clients do."""
    return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body)


def catalogued(snapshot: Snapshot, now_ms: int = NOW_MS) -> dict[SampleKey, float]:
    return {(s.name, frozenset(s.labels.items())): s.value for s in samples(snapshot, now_ms)}
