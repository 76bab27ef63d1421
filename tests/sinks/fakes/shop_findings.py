"""What queuewatch finds on the shop's bad afternoon."""

from __future__ import annotations

from streaming.judge.signals import Finding
from tests.sinks.fakes.shop_messages import ShopMessages
from tests.sinks.fakes.views import finding


def shop_findings(now_ms: int, m: ShopMessages) -> tuple[Finding, ...]:
    """A poison order, a stuck group, a stalled queue, expiring dead letters, and a silent collector."""
    s = 1000
    return (
        finding(
            "PoisonMessage",
            "orders",
            "warning",
            now_ms - 44 * s,
            f"Message {m.poison.message_id} was received 5 times without being finished; "
            "1 receive is left before it goes to orders-dlq.",
            message_id=m.poison.message_id,
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
            f"Message {m.second.message_id} was received 3 times without being finished; 3 receives are left.",
            message_id=m.second.message_id,
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
            head_message_id=m.head.message_id,
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
            message_id=m.dead[0].message_id,
            time_left_s=9_000,
        ),
        finding(
            "DeadLetterArrived",
            "orders-dlq",
            "warning",
            now_ms - 120 * s,
            f"Message {m.dead[9].message_id} arrived from orders after 6 receives (10th arrival).",
            message_id=m.dead[9].message_id,
            part="10",
            from_queue="orders",
        ),
        finding(
            "MessageHeldTooLong",
            "video-transcode",
            "warning",
            now_ms - 430 * s,
            "video-encoder-7 has held a message for 32 min 10 s, extending its window 6 times.",
            message_id=m.held.message_id,
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
