"""The initial content of a checkpoint created from another one: states, the judge's memory, offsets to continue from, losses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from streaming.checkpoint.offset_log import Partition
from streaming.checkpoint.state_files import StateFile
from streaming.errors import CheckpointMismatch
from streaming.folder import write_durably

NAME: Final = "seed.json"
SEED_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Seed:
    """Used while a shard has no state yet, and while Spark has not read anything yet."""

    states: Mapping[int, tuple[StateFile, ...]]
    """Files by the shard's key."""
    kafka: Mapping[Partition, int]
    """The offset from which each partition is read."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """What the old checkpoint's job had lost, as in the ledger."""
    continues: Mapping[str, int] = field(default_factory=dict)
    """How many batches of the old checkpoint came before batch 0 of this one, by its id. There are several ids if the old one was
    itself made from another one and had committed no batch yet."""


def read_seed(checkpoint: Path) -> Seed | None:
    """Read the seed of a checkpoint, None where there is none. Raises `CheckpointMismatch` when it cannot be read."""
    try:
        content = (checkpoint / NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return _seed(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise seed_damaged(checkpoint, f"{NAME} cannot be read: {error!r}") from error


def seed_damaged(checkpoint: Path, problem: str) -> CheckpointMismatch:
    """Return the error that says so, with its remedy: the checkpoint that this one was made from still has its state."""
    return CheckpointMismatch(
        f"the initial state of checkpoint {checkpoint} is damaged: {problem}",
        "Make it again from the old one: queuewatch state reshard",
    )


def _seed(body: Any) -> Seed:
    if body["version"] != SEED_VERSION:
        raise ValueError(f"it has version {body['version']}, this release reads {SEED_VERSION}")
    states = {int(key): tuple(map(StateFile.of, files)) for key, files in body["states"].items()}
    kafka = {(topic, int(number)): at for topic, of_topic in body["kafka"].items() for number, at in of_topic.items()}
    # Earlier releases did not store what was lost, nor what is continued.
    lost, continues = ({str(name): int(n) for name, n in body.get(key, {}).items()} for key in ("lost", "continues"))
    return Seed(states, kafka, lost, continues)


def write_seed(checkpoint: Path, seed: Seed) -> None:
    """Write the seed."""
    kafka: dict[str, dict[str, int]] = {}
    for (topic, number), at in seed.kafka.items():
        kafka.setdefault(topic, {})[str(number)] = at
    states = {str(key): list(map(str, files)) for key, files in seed.states.items()}
    body = {
        "version": SEED_VERSION,
        "states": states,
        "kafka": kafka,
        "lost": dict(seed.lost),
        "continues": dict(seed.continues),
    }
    write_durably(checkpoint / NAME, json.dumps(body, indent=1).encode())
