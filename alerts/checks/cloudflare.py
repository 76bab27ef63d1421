"""Cloudflare Queues: inspects a queue with wrangler and the REST API.

`messages/peek` (formerly `messages/preview`) shows messages without acknowledging, retrying or moving them.
`messages/pull` takes a lease and counts an attempt, so it is not used here.
"""

from __future__ import annotations

from alerts.entry import Check

TOKEN = "read -rs CLOUDFLARE_API_TOKEN && export CLOUDFLARE_API_TOKEN"
"""By itself: `read` takes the next pasted line as the token."""

PREPARE = """\
export ACCOUNT_ID='0123456789abcdef'   # label "scope_id"
export WORKER='orders-consumer'        # the Worker that consumes the queue, or a dead-letter queue's source
export API="https://api.cloudflare.com/client/v4/accounts/$ACCOUNT_ID"
cf() { curl -fsS -H "Authorization: Bearer $CLOUDFLARE_API_TOKEN" "$API/$1" "${@:2}" | jq .result; }
queue_id() { cf queues | jq -r --arg name "$1" '.[] | select(.queue_name == $name) | .queue_id'; }
sources() {                            # the queues whose dead letters go to this one
  cf queues | jq -r --arg name "$1" '.[] | select(any(.consumers[]?; .dead_letter_queue == $name)) | .queue_name'
}
use_queue() {                          # NAME: sets QUEUE and everything that depends on it
  export QUEUE="$1" QUEUE_ID DLQ DLQ_ID
  QUEUE_ID="$(queue_id "$QUEUE")"
  DLQ="$(cf "queues/$QUEUE_ID/consumers" | jq -r '.[0].dead_letter_queue // empty')"
  # A dead-letter queue: its own consumer, if it has one, names none, but consumers of other queues name it.
  if [ -z "$DLQ" ] && [ -n "$(sources "$QUEUE")" ]; then DLQ="$QUEUE"; fi
  DLQ_ID="${DLQ:+$(queue_id "$DLQ")}"
}
use_queue "$QUEUE"\
"""


def backlog(look_for: str) -> Check:
    return Check(
        "The backlog and the oldest message as Cloudflare sees them",
        'cf "queues/$QUEUE_ID/metrics"',
        look_for,
    )


def peek(look_for: str) -> Check:
    return Check(
        "A sample of the messages with their attempts, without receiving them",
        "cf \"queues/$QUEUE_ID/messages/peek\" -X POST -H 'Content-Type: application/json' -d '{\"batch_size\": 10}'",
        look_for,
    )


def settings(look_for: str) -> Check:
    return Check(
        "The queue's settings, producers and consumers",
        'cf "queues/$QUEUE_ID"',
        look_for,
    )


def consumers(look_for: str) -> Check:
    return Check(
        "The consumer's batch size, timeout, retries, delay and dead-letter queue",
        'cf "queues/$QUEUE_ID/consumers"',
        look_for,
    )


def info(look_for: str) -> Check:
    return Check("An overview of the queue", 'npx wrangler queues info "$QUEUE"', look_for)


def tail(look_for: str) -> Check:
    return Check(
        "The consumer Worker's failures, live",
        'npx wrangler tail "$WORKER" --format pretty --status error',
        look_for,
    )


def deployments(look_for: str) -> Check:
    return Check(
        "When the consumer Worker was last deployed",
        'npx wrangler deployments list --name "$WORKER"',
        look_for,
    )


def queues(look_for: str) -> Check:
    return Check(
        "All queues with the number of their producers and consumers",
        "cf queues | jq '.[] | {queue_name, producers_total_count, consumers_total_count, settings}'",
        look_for,
    )


def dead_letter_backlog(look_for: str) -> Check:
    return Check(
        "The dead-letter queue's backlog",
        'cf "queues/$DLQ_ID/metrics"',
        look_for,
    )


def dead_letter_sources(look_for: str) -> Check:
    return Check("Which queues send their dead letters here", 'sources "$QUEUE"', look_for)


def last_purge(look_for: str) -> Check:
    return Check("When the queue was last purged", 'cf "queues/$QUEUE_ID/purge"', look_for)
