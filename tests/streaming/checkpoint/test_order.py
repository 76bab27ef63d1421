"""A change of the ordered queues that would lose known messages is refused, with the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streaming.checkpoint.manifest import NAME, Manifest, Order, read_manifest
from streaming.checkpoint.memory_store import FOLDER as MEMORIES
from streaming.checkpoint.order import check_order, order_of, queues_out_of_place, queues_remembered, settings_by
from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.errors import CheckpointMismatch
from streaming.folder import LocalFolder
from tests.streaming.checkpoints import NAMES, unpacked

ORDERS = QueueName("aws_sqs", "eu/1", "orders")


def rules(*given: tuple[str, bool | None]) -> Settings:
    """Return settings with these patterns."""
    return Settings(rules=tuple(QueueRule(pattern, ordered=ordered) for pattern, ordered in given))


def made_with(checkpoint: Path, order: Order | None, **changes: Any) -> Manifest:
    """Return the manifest of a checkpoint after it was made with these patterns."""
    body = json.loads((checkpoint / NAME).read_text()) | changes
    body.pop("queues", None)
    if order is not None:
        body["queues"] = [{"pattern": pattern, "ordered": ordered} for pattern, ordered in order]
    (checkpoint / NAME).write_text(json.dumps(body))
    manifest = read_manifest(LocalFolder(checkpoint), str(checkpoint))
    assert manifest is not None
    return manifest


@pytest.mark.parametrize(
    ("settings", "order"),
    [
        (rules(), ()),
        (rules(("a", None)), ()),
        (rules(("a", None), ("b", True), ("c", None)), (("a", None), ("b", True))),
        (rules(("b.fifo", False)), (("b.fifo", False),)),
    ],
    ids=["none", "one that decides nothing", "one before it may shadow it, one after it cannot", "not ordered by name"],
)
def test_only_patterns_that_decide_are_recorded(settings: Settings, order: Order) -> None:
    """The other settings of a pattern may change freely."""
    assert order_of(settings) == order
    assert order_of(settings_by(order)) == order


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ((), rules(("orders", True)), "orders unordered, not ordered"),
        ((), rules(("*", True)), r"unordered, not ordered \(and \d more queues changed\)"),
        ((), rules(("*.fifo", False)), "payments.fifo ordered, not unordered"),
        ((), rules(("other", True), ("payments.fifo", True)), None),
        ((), rules(("o*", None), ("orders", True)), None),
        ((("orders", None),), rules(("orders", True)), "orders unordered, not ordered"),
        (None, rules(("orders", True)), None),
        ((), rules(), None),
    ],
    ids=[
        "newly ordered",
        "several",
        "no longer ordered",
        "nothing known moves",
        "shadowed",
        "a pattern that decided nothing",
        "of an earlier release",
        "unchanged",
    ],
)
def test_what_would_lose_known_messages_is_refused(was: Order | None, now: Settings, says: str | None, tmp_path: Path) -> None:
    """Their events would go to shards that do not know them, and they would wait for ever."""
    checkpoint = unpacked(NAMES[-1], tmp_path)
    manifest = made_with(checkpoint, was)
    if says is None:
        check_order(manifest, str(checkpoint), now, lambda: queues_out_of_place(checkpoint, now))
        return
    with pytest.raises(CheckpointMismatch, match=says) as caught:
        check_order(manifest, str(checkpoint), now, lambda: queues_out_of_place(checkpoint, now))
    assert f"queuewatch state reshard {checkpoint} --shards 2 --out NEW --config FILE" in caught.value.fix


def test_one_shard_knows_all_messages_whatever_is_ordered(tmp_path: Path) -> None:
    """Its states need not be read."""
    manifest = made_with(unpacked(NAMES[-1], tmp_path), (), shards=1)
    check_order(manifest, "here", rules(("orders", True)), lambda: pytest.fail("not asked"))


def test_a_checkpoint_without_a_batch_knows_no_messages(tmp_path: Path) -> None:
    """The job was stopped at once."""
    assert queues_out_of_place(tmp_path, rules(("*", True))) == set()


def test_behind_a_uri_the_judge_s_memory_names_the_queues(tmp_path: Path) -> None:
    """The states are in Spark's own there, so `state reshard` is no remedy."""
    checkpoint = unpacked(NAMES[-1], tmp_path)
    manifest = made_with(checkpoint, ())
    memories = LocalFolder(checkpoint / MEMORIES)
    assert ORDERS in queues_remembered(memories)
    check_order(manifest, "s3a://b/ck", rules(("other", True)), lambda: queues_remembered(memories))
    with pytest.raises(CheckpointMismatch, match="orders unordered, not ordered") as caught:
        check_order(manifest, "s3a://b/ck", rules(("orders", True)), lambda: queues_remembered(memories))
    assert "reshard" not in caught.value.fix
    assert "spark.checkpoint_dir to a new folder" in caught.value.fix
    assert queues_remembered(LocalFolder(tmp_path / "new")) == {}
