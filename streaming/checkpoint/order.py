"""The queues that the configuration marks as ordered: a change moves the next events of their messages to other shards."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from pathlib import Path

from streaming.checkpoint.manifest import START_AFRESH, Manifest, Order
from streaming.checkpoint.memory_store import MemoryStore
from streaming.checkpoint.offset_log import COMMITS, batch_ids
from streaming.checkpoint.seed import read_seed
from streaming.checkpoint.stored import open_stored
from streaming.core.maintenance.placement import out_of_place
from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.errors import CheckpointMismatch
from streaming.folder import Folder, LocalFolder, local_folder

Known = Callable[[], Collection[QueueName]]


def order_of(settings: Settings) -> Order:
    """Return the patterns of `queues` up to the last that decides whether its queues are ordered."""
    rules = [(rule.pattern, rule.ordered) for rule in settings.rules]
    while rules and rules[-1][1] is None:
        rules.pop()
    return tuple(rules)


def settings_by(order: Order) -> Settings:
    """Return settings by which the same queues are ordered."""
    return Settings(rules=tuple(QueueRule(pattern, ordered=ordered) for pattern, ordered in order))


def check_order(manifest: Manifest | None, uri: str, settings: Settings, known: Known) -> None:
    """Raise `CheckpointMismatch` if other queues are ordered than in the checkpoint, and known messages would be lost by that.

    `known` returns the queues that have such messages; it is called only where the patterns differ.
    """
    if manifest is None or manifest.order in (None, order_of(settings)) or manifest.checkpoint.shards == 1:
        return
    before = settings_by(manifest.order or ())
    changed = sorted(name for name in known() if before.is_ordered(name) != settings.is_ordered(name))
    if not changed:
        return
    states = ("ordered", "unordered") if before.is_ordered(changed[0]) else ("unordered", "ordered")
    more = f" (and {len(changed) - 1} more queues changed)" if len(changed) > 1 else ""
    remedy = START_AFRESH
    if local_folder(uri) is not None:
        command = f"queuewatch state reshard {shlex.quote(uri)} --shards {manifest.checkpoint.shards} --out NEW --config FILE"
        remedy = f"move its messages to where their next events go: {command}, then set spark.checkpoint_dir to it"
    raise CheckpointMismatch(
        f"the checkpoint {uri} was made with the queue {'/'.join(changed[0])} {states[0]}, not {states[1]}{more}",
        f"Set `ordered` under `queues` back, or {remedy}",
    )


def queues_out_of_place(checkpoint: Path, settings: Settings) -> set[QueueName]:
    """Return the queues with messages in another shard than these settings say. Raises `CheckpointMismatch`."""
    if not batch_ids(LocalFolder(checkpoint / COMMITS)) and read_seed(checkpoint) is None:
        return set()
    stored = open_stored(checkpoint)
    return out_of_place(stored.states_by_index(), stored.manifest.checkpoint.shards, settings)


def queues_remembered(memories: Folder) -> Collection[QueueName]:
    """Return the queues in the judge's latest memory: those with messages, or with events in the last hour."""
    return MemoryStore(memories).latest().queues
