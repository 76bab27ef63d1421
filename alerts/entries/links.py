"""Links from the entries to the vendors' documentation."""

from __future__ import annotations

from alerts.entry import Link

_SQS = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/"
_CLOUDFLARE = "https://developers.cloudflare.com/queues/"
_ACTIVEMQ = "https://activemq.apache.org/components/classic/documentation/"

SQS_VISIBILITY = Link("SQS: visibility timeout", f"{_SQS}sqs-visibility-timeout.html")
SQS_DEAD_LETTERS = Link("SQS: dead-letter queues", f"{_SQS}sqs-dead-letter-queues.html")
SQS_DLQ_RETENTION = Link("SQS: retention of dead letters", f"{_SQS}setting-up-dead-letter-queue-retention.html")
SQS_REDRIVE = Link("SQS: dead-letter queue redrive", f"{_SQS}sqs-configure-dead-letter-queue-redrive.html")
SQS_FIFO = Link("SQS: how FIFO delivery works", f"{_SQS}FIFO-queues-understanding-logic.html")
SQS_FAIR = Link("SQS: fair queues", f"{_SQS}sqs-fair-queues.html")
SQS_QUOTAS = Link("SQS: message quotas", f"{_SQS}quotas-messages.html")
SQS_PROBLEMATIC = Link("SQS: capturing problematic messages", f"{_SQS}capturing-problematic-messages.html")
SQS_PURGE = Link("SQS: purging a queue", f"{_SQS}sqs-using-purge-queue.html")
LAMBDA_SQS = Link(
    "Lambda with SQS: partial batch responses",
    "https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html",
)

ACTIVEMQ_REDELIVERY = Link("ActiveMQ: redelivery and dead letters", f"{_ACTIVEMQ}message-redelivery-and-dlq-handling")
ACTIVEMQ_GROUPS = Link("ActiveMQ: message groups", f"{_ACTIVEMQ}message-groups")
ACTIVEMQ_SLOW = Link("ActiveMQ: slow consumer handling", f"{_ACTIVEMQ}slow-consumer-handling")
ACTIVEMQ_PREFETCH = Link("ActiveMQ: the prefetch limit", f"{_ACTIVEMQ}what-is-the-prefetch-limit-for")
ACTIVEMQ_FLOW = Link("ActiveMQ: producer flow control", f"{_ACTIVEMQ}producer-flow-control")
ACTIVEMQ_AUDIT = Link("ActiveMQ: audit logging", f"{_ACTIVEMQ}audit-logging")
ACTIVEMQ_ADVISORIES = Link("ActiveMQ: advisory messages", f"{_ACTIVEMQ}advisory-message")

CLOUDFLARE_RETRIES = Link("Cloudflare Queues: batching, retries and delays", f"{_CLOUDFLARE}configuration/batching-retries/")
CLOUDFLARE_DEAD_LETTERS = Link("Cloudflare Queues: dead-letter queues", f"{_CLOUDFLARE}configuration/dead-letter-queues/")
CLOUDFLARE_PAUSE = Link("Cloudflare Queues: pause and purge", f"{_CLOUDFLARE}configuration/pause-purge/")
CLOUDFLARE_CONCURRENCY = Link("Cloudflare Queues: consumer concurrency", f"{_CLOUDFLARE}configuration/consumer-concurrency/")
CLOUDFLARE_LIMITS = Link("Cloudflare Queues: limits", f"{_CLOUDFLARE}platform/limits/")
