"""The implementation of `queuewatch state`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from sinks.explain.formatting import count, printable
from sinks.lines import to_json
from streaming.checkpoint.manifest import locked
from streaming.checkpoint.order import settings_by
from streaming.checkpoint.reshard import files_read_by_spark, reshard_into
from streaming.checkpoint.shards import shard_indexes
from streaming.checkpoint.state_files import StateDamaged
from streaming.checkpoint.stored import Stored, manifest_of, open_stored, verify
from streaming.cli.errors import CommandError
from streaming.config import load_config
from streaming.config.model import to_settings
from streaming.core.maintenance.placement import restore_all
from streaming.core.settings import Settings
from streaming.core.state.queues import TOTALS
from streaming.core.state.rows import F_ENDED
from streaming.core.state.state import ShardState
from streaming.core.state_reports import report_of
from streaming.folder import LocalFolder
from streaming.judge.findings.signals import SEVERITY_RANK
from streaming.judge.memory.memory import JudgeMemory


def inspected(checkpoint: Path) -> Iterator[str]:
    """Return a readable summary. Raises `CheckpointMismatch`, `CommandError`."""
    stored = open_stored(checkpoint)
    manifest = stored.manifest
    states = _states(stored)
    yield f"checkpoint  {manifest.checkpoint.id}"
    yield f"release     {manifest.written_by or 'unknown'}"
    yield f"formats     {', '.join(f'{name} {version}' for name, version in sorted(manifest.formats.items()))}"
    yield f"sources     {', '.join(manifest.checkpoint.sources)}"
    yield f"batch       {'none yet' if stored.batch_id is None else f'{stored.batch_id} of {_time(stored.now_ms)}'}"
    for (topic, partition), offset in sorted(stored.kafka.items()):
        yield f"kafka       {topic}/{partition} read up to {offset}, {stored.lost.get(f'{topic}/{partition}', 0)} lost"
    index_of = shard_indexes(manifest.checkpoint.shards)
    for index, key in sorted((index_of.get(key, key), key) for key in states):
        state = states[key]
        size = stored.packed(key).size
        segments = count(len(state.segments), "tombstone segment")
        yield f"shard {index:<5} {count(state.messages, 'message')} ({len(state.rows):,} in rows, {segments}), {size:,} bytes"
    merged = report_of(list(states.values()), Settings())
    for (system, scope, queue), summary in merged.queues.items():
        totals = ", ".join(f"{name} {n}" for name, n in zip(TOTALS, summary.totals, strict=True) if n)
        visible = summary.numbers["visible"]
        yield printable(f"queue       {system} {scope or '-'} {queue}: {visible} visible, {totals or 'no events counted'}")
    firing = sorted(_memory(stored).firing, key=lambda finding: -SEVERITY_RANK[finding.severity])
    yield f"firing      {count(len(firing), 'signal')}"
    for finding in firing:
        folded = f" (folded into {finding.folded})" if finding.folded else ""
        yield printable(f"signal      {finding.severity} {finding.key.signal}: {finding.summary}{folded}")
    for destination, records in stored.waiting().items():
        yield f"outbox      {records} records are waiting for {destination}"


def verified(checkpoint: Path) -> tuple[bool, list[str]]:
    """Return whether the last batch is intact, and lines that say so or list the problems."""
    problems = list(verify(checkpoint))
    stored = open_stored(checkpoint)
    whole = (
        "the checkpoint it was created from" if stored.batch_id is None else f"batch {stored.batch_id} of {_time(stored.now_ms)}"
    )
    if not problems:
        return True, [f"{checkpoint}: OK, {whole} is intact"]
    return False, [*(f"{checkpoint}: {problem}" for problem in problems), f"{checkpoint}: the next start continues from {whole}"]


def exported(checkpoint: Path) -> Iterator[str]:
    """Return JSON lines: each queue, then each message. Times are epoch milliseconds.

    Raises `CheckpointMismatch` and `CommandError` at once, before the first line.
    """
    return _lines(_states(open_stored(checkpoint)))


def _lines(states: dict[int, ShardState]) -> Iterator[str]:
    for (system, scope, queue), summary in report_of(list(states.values()), Settings()).queues.items():
        yield to_json(
            {
                "kind": "queue",
                "system": system,
                "scope": scope,
                "queue": queue,
                "totals": dict(zip(TOTALS, summary.totals, strict=True)),
                "attributes": {name: reported.value for name, reported in summary.attributes.items()},
            }
        )
    for state in states.values():
        yield from _messages(state)


def resharded(checkpoint: Path, shards: int, out: Path, config: Path | None, *, spool_is_empty: bool) -> Iterator[str]:
    """Reshard, and return lines that describe the result. Raises `CommandError`, `CheckpointMismatch`, `CheckpointInUse`."""
    manifest = manifest_of(checkpoint)  # before the lock, which creates a folder and writes to it
    settings = to_settings(load_config(config)) if config is not None else settings_by(manifest.order or ())
    with locked(LocalFolder(checkpoint)):
        stored = open_stored(checkpoint)
        if (already := len(files_read_by_spark(checkpoint))) and not spool_is_empty:
            raise CommandError(
                f"the new checkpoint would read the spool folder from its beginning, and {already} files in it were read before. "
                "Move them away, then pass --spool-is-empty"
            )
        messages = reshard_into(stored, out, shards, settings)
    before = stored.manifest.checkpoint.shards
    yield f"{out}: {messages} messages in {shards} shards (before: {before}); totals and report are the same"
    for destination, records in open_stored(out).waiting().items():
        yield f"{out}: {records} records still wait for {destination}"
    yield f"Set spark.checkpoint_dir: {out} and spark.shards: {shards}. Keep {checkpoint}, which is unchanged, until that runs."


def _states(stored: Stored) -> dict[int, ShardState]:
    try:
        return stored.states()
    except (StateDamaged, ValueError) as error:
        raise _damaged(stored, error) from error


def _memory(stored: Stored) -> JudgeMemory:
    try:
        return stored.judge_memory()
    except ValueError as error:
        raise _damaged(stored, error) from error


def _damaged(stored: Stored, error: Exception) -> CommandError:
    return CommandError(f"{stored.path}: {error}. `queuewatch state verify` says what is intact")


def _messages(state: ShardState) -> Iterator[str]:
    restore_all(state)
    rows = state.rows
    everything = np.arange(len(rows))
    columns = {
        name: rows[name].tolist()
        for name in ("queue", "sent", "receive_count", "last_received", "window_end", "flags", "ended", "group", "consumer")
    }
    groups, consumers = state.groups.words(rows["group"]), state.consumers.words(rows["consumer"])
    for i, message_id in enumerate(state.message_ids(everything)):
        system, scope, queue = state.queues[columns["queue"][i]].name
        line = {
            "kind": "message",
            "system": system,
            "scope": scope,
            "queue": queue,
            "message_id": message_id,
            "sent_at": columns["sent"][i],
            "receive_count": columns["receive_count"][i],
            "last_received_at": columns["last_received"][i],
            "invisible_until": columns["window_end"][i],
            "settled": bool(columns["flags"][i] & F_ENDED),
            "ended_at": columns["ended"][i],
            "group": groups[i],
            "consumer": consumers[i],
        }
        yield to_json({name: value for name, value in line.items() if value not in (None, 0) or name == "settled"})


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
