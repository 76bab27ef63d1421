"""A shop's bad afternoon, and the quarter of an hour before it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from streaming.judge.snapshot import (
    Attempt,
    ConsumerView,
    GroupView,
    MessageView,
    PipelineView,
    QueueView,
    Snapshot,
)
from tests.sinks.fakes.views import NOW_MS, age_counts, finding, oldest, queue_view, receives, totals


def shop_snapshot(now_ms: int = NOW_MS, batch_id: int = 812) -> Snapshot:
    """A shop's bad afternoon: a poison order, a stuck group, a stalled queue, expiring dead letters."""
    s = 1000
    poison_id = "7f3a1c52-90de-4b7b-8a11-3f2f4f0a9c01"
    poison = MessageView(
        poison_id,
        "in_flight",
        now_ms - 161 * s,
        5,
        ("poison", "oldest"),
        consumer="orders-worker-2",
        last_received_at_ms=now_ms - 9 * s,
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

    queues = (
        queue_view(
            "orders",
            now_ms,
            status="lagging",
            visible=184,
            in_flight=12,
            delayed=3,
            tracked=199,
            oldest_ms=oldest(now_ms, all=161, visible=96, cloudwatch=54, healthy=22),
            age_counts=age_counts([3] * 120 + [10] * 60 + [20] * 17 + [96, 161]),
            age_sum_s=1_800.0,
            totals=totals(sent=48_210, received=48_455, deleted=48_003, dead_lettered=7),
            receive_count_max=5,
            poison_messages=2,
            messages=(poison, second),
            consumers=(
                ConsumerView("orders-worker-2", 7, now_ms - 9 * s, poison_id),
                ConsumerView("orders-worker-1", 5, now_ms - 2 * s, "0b0b0b0b-2222-4333-8444-555566667777"),
            ),
            time_to_drain_s=74.0,
            coverage_ratio=0.994,
            broker={
                "kind": "standard",
                "visibility_timeout_s": 30,
                "retention_s": 345_600,
                "max_receive_count": 6,
                "dead_letter_queue": "orders-dlq",
            },
        ),
        queue_view(
            "orders-dlq",
            now_ms,
            is_dead_letter_queue=True,
            visible=10,
            tracked=10,
            oldest_ms=oldest(now_ms, all=336_000, visible=336_000, cloudwatch=13_620, healthy=336_000),
            age_counts=age_counts([300_000.0 + 4_000 * i for i in range(10)]),
            age_sum_s=3_180_000.0,
            totals=totals(sent=10, received=4),
            receive_count_max=6,
            messages=dead,
            dead_letter_expires_at_ms=now_ms + 9_000 * s,
            last_settled_at_ms=None,
            broker={"kind": "standard", "retention_s": 345_600, "visibility_timeout_s": 30},
        ),
        queue_view(
            "payments.fifo",
            now_ms,
            visible=2_310,
            in_flight=38,
            delayed=0,
            tracked=2_348,
            oldest_ms=oldest(now_ms, all=412, visible=412, cloudwatch=412, healthy=405),
            age_counts=age_counts([2.0] * 2_100 + [200.0] * 248),
            age_sum_s=53_800.0,
            totals=totals(sent=910_122, received=909_990, deleted=907_774),
            receive_count_max=11,
            poison_messages=1,
            stuck_groups=1,
            groups={"backlog": 214, "in_flight": 38, "blocked": 1, "hidden": 0},
            top_groups=(
                GroupView("customer-4711", 248, 0, now_ms - 412 * s, head.message_id, 11, now_ms - 420 * s, True),
                *(
                    GroupView(
                        f"customer-{1000 + 37 * i}",
                        30 - i,
                        i % 2,
                        now_ms - (22 - i) * s,
                        f"1884956123491{i:07d}",
                        1,
                        now_ms - (2 + i) * s,
                        False,
                    )
                    for i in range(9)
                ),
            ),
            other_groups=204,
            other_groups_oldest_ms=now_ms - 9 * s,
            messages=(head,),
            consumers=(
                ConsumerView("payments-worker-1", 20, now_ms - 3 * s, "m1"),
                ConsumerView("payments-worker-2", 18, now_ms - 2 * s, "m2"),
            ),
            broker={"kind": "fifo", "visibility_timeout_s": 30, "look_ahead": 120_000},
        ),
        queue_view(
            "video-transcode",
            now_ms,
            visible=41,
            in_flight=6,
            tracked=47,
            oldest_ms=oldest(now_ms, all=1_950, visible=640, cloudwatch=1_950, healthy=1_950),
            age_counts=age_counts([600.0] * 46 + [1_950.0]),
            age_sum_s=29_550.0,
            totals=totals(sent=1_205, received=1_190, deleted=1_158),
            receive_count_max=2,
            messages=(held,),
            consumers=(
                ConsumerView("video-encoder-7", 1, now_ms - 1_930 * s, held.message_id),
                ConsumerView("video-encoder-3", 5, now_ms - 44 * s, "m9"),
            ),
            broker={"kind": "standard", "visibility_timeout_s": 300, "retention_s": 345_600},
        ),
        queue_view(
            "invoice-mail",
            now_ms,
            status="stopped",
            visible=927,
            in_flight=0,
            tracked=927,
            oldest_ms=oldest(now_ms, all=760, visible=760, cloudwatch=760, healthy=760),
            age_counts=age_counts([float(i % 760) for i in range(927)]),
            age_sum_s=350_000.0,
            totals=totals(sent=20_411, received=19_484, deleted=19_484),
            receive_count_max=1,
            last_settled_at_ms=now_ms - 755 * s,
            last_received_at_ms=now_ms - 758 * s,
        ),
        queue_view(
            "ORDERS.EU",
            now_ms,
            system="activemq",
            scope="amq-prod-1",
            kind="queue",
            visible=66,
            in_flight=240,
            delayed=None,
            tracked=306,
            oldest_ms=oldest(now_ms, all=48, visible=12, healthy=48),
            age_counts=age_counts([12.0] * 306),
            age_sum_s=3_672.0,
            totals=totals(sent=88_120, received=88_030, deleted=87_790),
            receive_count_max=2,
            consumers=(
                ConsumerView("ID:app-3-4711:1:1", 230, now_ms - 47 * s, "ID:app-1-1:1:1:44", True, 1000),
                ConsumerView("ID:app-2-4710:1:1", 10, now_ms - s, "ID:app-1-1:1:1:81", True, 10),
            ),
            broker={"kind": "queue"},
        ),
        queue_view(
            "image-resize",
            now_ms,
            system="cloudflare_queues",
            scope="acme",
            visible=19,
            in_flight=4,
            tracked=0,
            oldest_ms={},
            totals=totals(sent=7_000, received=6_990, deleted=6_977),
            coverage_ratio=None,
            broker={"kind": "cloudflare"},
        ),
        queue_view(
            "search-index",
            now_ms,
            visible=8,
            in_flight=3,
            tracked=11,
            receive_count_max=1,
            oldest_ms=oldest(now_ms, all=4, visible=3, cloudwatch=4, healthy=4),
            age_counts=age_counts([2.0] * 11),
            age_sum_s=22.0,
            totals=totals(sent=512_000, received=511_992, deleted=511_989),
            time_to_drain_s=2.0,
        ),
        queue_view(
            "audit.fifo",
            now_ms,
            visible=2,
            tracked=2,
            receive_count_max=0,
            groups={"backlog": 1, "in_flight": 0, "blocked": 0, "hidden": 0},
            top_groups=(GroupView("eu", 2, 0, now_ms - 2 * s, "77", 0, now_ms - s, False),),
            oldest_ms=oldest(now_ms, all=2, visible=2, cloudwatch=2, healthy=2),
            age_counts=age_counts([1.0, 2.0]),
            age_sum_s=3.0,
            totals=totals(sent=90_000, received=89_998, deleted=89_998),
        ),
        queue_view("newsletter", now_ms, totals=totals(sent=3_000, received=3_000, deleted=3_000)),
        queue_view(
            "warehouse-sync",
            now_ms,
            status="stale",
            scope="123456789012/us-east-1",
            visible=None,
            in_flight=None,
            delayed=None,
            last_event_at_ms=now_ms - 190 * s,
            coverage_ratio=None,
            broker={},
        ),
        queue_view(
            "sms-out",
            now_ms,
            visible=1,
            in_flight=1,
            tracked=2,
            receive_count_max=1,
            oldest_ms=oldest(now_ms, all=1, visible=1, cloudwatch=1, healthy=1),
            age_counts=age_counts([0.5, 1.0]),
            age_sum_s=1.5,
            totals=totals(sent=60_500, received=60_499, deleted=60_498),
        ),
    )
    firing = (
        finding(
            "PoisonMessage",
            "orders",
            "warning",
            now_ms - 44 * s,
            f"Message {poison_id} was received 5 times without being finished; 1 receive is left before it goes to orders-dlq.",
            message_id=poison_id,
            receive_count=5,
            receives_left=1,
            final_attempt=False,
            max_receive_count=6,
        ),
        finding(
            "PoisonMessage",
            "orders",
            "warning",
            now_ms - 31 * s,
            f"Message {second.message_id} was received 3 times without being finished; 3 receives are left.",
            message_id=second.message_id,
            receive_count=3,
            receives_left=3,
            final_attempt=False,
            max_receive_count=6,
        ),
        finding(
            "GroupStuck",
            "payments.fifo",
            "critical",
            now_ms - 330 * s,
            "Group customer-4711 is stuck behind a poison head: nothing settled for 7 min, 247 wait.",
            group="customer-4711",
            reason="poison_head",
            head_message_id=head.message_id,
            head_receive_count=11,
            waiting_behind=247,
        ),
        finding(
            "QueueStalled",
            "invoice-mail",
            "critical",
            now_ms - 455 * s,
            "927 messages are visible and nobody received one for 12 min 38 s: the consumers stopped.",
            reason="no_receives",
            visible=927,
        ),
        finding(
            "DeadLetterExpiring",
            "orders-dlq",
            "critical",
            now_ms - 2_000 * s,
            "The oldest dead letter is lost in 2 h 30 min: on a standard queue retention runs from the original send.",
            message_id=dead[0].message_id,
            time_left_s=9_000,
        ),
        finding(
            "DeadLetterArrived",
            "orders-dlq",
            "warning",
            now_ms - 120 * s,
            f"Message {dead[9].message_id} arrived from orders after 6 receives (10th arrival).",
            message_id=dead[9].message_id,
            part="10",
            from_queue="orders",
        ),
        finding(
            "MessageHeldTooLong",
            "video-transcode",
            "warning",
            now_ms - 430 * s,
            "video-encoder-7 has held a message for 32 min 10 s, extending its window 6 times.",
            message_id=held.message_id,
            consumer="video-encoder-7",
            held_s=1_930,
        ),
        finding(
            "SlowConsumer",
            "ORDERS.EU",
            "warning",
            now_ms - 17 * s,
            "ID:app-3-4711:1:1 has held its oldest message for 47 s; the median hold on this queue is 1.1 s.",
            system="activemq",
            scope="amq-prod-1",
            consumer="ID:app-3-4711:1:1",
            held_s=47,
            usual_hold_s=1.1,
        ),
        finding(
            "TelemetryStale",
            "warehouse-sync",
            "warning",
            now_ms - 70 * s,
            "Collector sqs-us has been silent for 3 min 10 s.",
            scope="123456789012/us-east-1",
            consumer="sqs-us",
            silent_s=190,
        ),
    )
    return Snapshot(
        at_ms=now_ms,
        queues=queues,
        firing=firing,
        events_total={"accepted": 5_120_334, "duplicate": 1_204, "late": 3, "invalid": 12},
        invalid_total={"not_json": 9, "missing_queue": 3},
        collectors={"sqs-eu": now_ms - 4 * s, "sqs-us": now_ms - 190 * s},
        folded={"groups": 204},
        pipeline=PipelineView(batch_id, 0.31, now_ms - 300, 0, 0.42, 31_000_000, 3_001, 2_440.0),
    )


def shop_past(now_ms: int = NOW_MS, steps: int = 90, step_ms: int = 10_000) -> Iterator[Snapshot]:
    """The quarter of an hour that led to `shop_snapshot(now_ms)`, oldest first, to draw trends from."""
    rng = random.Random(11)
    shop = shop_snapshot(now_ms)
    for step in range(steps):
        at_ms = now_ms - (steps - step) * step_ms
        gone = step / steps
        queues = tuple(_as_it_was(queue, at_ms, _LEVELS.get(queue.queue, _steady)(gone), now_ms, rng) for queue in shop.queues)
        yield replace(shop, at_ms=at_ms, queues=queues)


def _steady(gone: float) -> float:
    return 1 + 0.15 * math.sin(gone * 17)


_LEVELS: dict[str, Callable[[float], float]] = {
    "invoice-mail": lambda gone: max(0.0, (gone - 0.16) / 0.84),
    "payments.fifo": lambda gone: 0.15 + 0.05 * math.sin(gone * 30) if gone < 0.55 else 0.15 + (gone - 0.55) * 1.85,
    "orders": lambda gone: 0.45 + 0.25 * math.sin(gone * 9) + 0.4 * gone * gone,
    "newsletter": lambda gone: max(0.0, 1 - abs(gone - 0.3) * 6) * 300,
    "orders-dlq": lambda gone: 0.6 + 0.1 * int(gone * 4),
    "ORDERS.EU": lambda gone: 0.5 if gone < 0.93 else 0.5 + (gone - 0.93) * 7,
    "search-index": lambda gone: 1 + 0.8 * math.sin(gone * 41),
}


def _as_it_was(queue: QueueView, at_ms: int, level: float, now_ms: int, rng: random.Random) -> QueueView:
    if queue.visible is None:
        return queue
    if not queue.is_dead_letter_queue:
        level *= rng.uniform(0.92, 1.08)
    visible = round(max(queue.visible, 1) * level)
    ages_ms = {scope: max(0.0, (now_ms - since_ms) * level) for scope, since_ms in queue.oldest_ms.items()}
    oldest_ms = {scope: at_ms - int(age_ms) for scope, age_ms in ages_ms.items()} if visible else {}
    return replace(queue, visible=visible, oldest_ms=oldest_ms)
