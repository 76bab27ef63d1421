"""The messages in trouble on the shop's bad afternoon."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.judge.snapshot import Attempt, MessageView
from tests.sinks.fakes.views import receives


@dataclass(frozen=True)
class ShopMessages:
    """Messages that the page and the findings name."""

    poison: MessageView
    second: MessageView
    head: MessageView
    held: MessageView
    dead: tuple[MessageView, ...]


def shop_messages(now_ms: int) -> ShopMessages:
    """Two poison orders, a group's poison head, a video held too long, and ten dead letters."""
    s = 1000
    poison = MessageView(
        "7f3a1c52-90de-4b7b-8a11-3f2f4f0a9c01",
        "in_flight",
        now_ms - 161 * s,
        5,
        ("poison", "oldest"),
        consumer="orders-worker-2",
        last_received_at_ms=now_ms - 9 * s,
        held_since_ms=now_ms - 9 * s,
        invisible_until_ms=now_ms + 21 * s,
        attempts=receives(now_ms - 149 * s, 35 * s, 5, 30 * s, "orders-worker-2"),
    )
    second = MessageView(
        "c0ffee00-1111-4222-8333-444455556666",
        "visible",
        now_ms - 96 * s,
        3,
        ("poison",),
        last_received_at_ms=now_ms - 31 * s,
        attempts=receives(now_ms - 95 * s, 32 * s, 3, 30 * s, "orders-worker-1"),
    )
    head = MessageView(
        "18849561234907385856",
        "visible",
        now_ms - 412 * s,
        11,
        ("head", "poison"),
        group="customer-4711",
        sequence="18849561234907385856",
        last_received_at_ms=now_ms - 12 * s,
        attempts=receives(now_ms - 402 * s, 39 * s, 11, 30 * s, "payments-worker-1"),
    )
    held = MessageView(
        "5a8e2b10-7777-4c4c-9d9d-0f0f0f0f0f0f",
        "in_flight",
        now_ms - 1_950 * s,
        1,
        ("held",),
        consumer="video-encoder-7",
        last_received_at_ms=now_ms - 1_930 * s,
        held_since_ms=now_ms - 1_930 * s,
        invisible_until_ms=now_ms + 250 * s,
        attempts=(
            Attempt(now_ms - 1_930 * s, "received", 1, now_ms - 1_630 * s, "video-encoder-7"),
            *(
                Attempt(
                    now_ms - (1_930 - 280 * i) * s,
                    "extended",
                    1,
                    now_ms - (1_630 - 280 * i) * s,
                    "video-encoder-7",
                )
                for i in range(1, 7)
            ),
        ),
    )
    dead = tuple(
        MessageView(
            f"dead{i:04d}-aaaa-4bbb-8ccc-ddddeeeeffff",
            "visible",
            now_ms - (300_000 + 4_000 * (9 - i)) * s,
            6,
            ("dead_letter",),
            arrived_at_ms=now_ms - (120 + 1_500 * (9 - i)) * s,
            expires_at_ms=now_ms + (9_000 + 4_000 * i) * s,
            arrival_known_by=("event", "first_receive", "inferred")[i % 3],
            last_received_at_ms=now_ms - 1_800 * s,
        )
        for i in range(10)
    )
    return ShopMessages(poison, second, head, held, dead)
