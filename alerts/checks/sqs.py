"""Amazon SQS: inspects a queue from outside with the AWS CLI.

No command here receives a message: a receive hides the message from its consumers and raises its receive count, so it could move
the message to the dead-letter queue. The console's "Poll for messages" is a receive, too.
"""

from __future__ import annotations

from alerts.entry import Check

PREPARE = """\
export AWS_REGION='eu-west-1'          # label "scope_id" is account/region
export AWS_DEFAULT_REGION="$AWS_REGION"   # for version 1 of the AWS CLI, which does not read AWS_REGION
export FUNCTION='orders-consumer'      # the Lambda function that consumes the queue, if one does
export CLUSTER='production' SERVICE='orders-consumer'   # or the ECS service that does
export LOG_GROUP="/aws/lambda/$FUNCTION"
url() { aws sqs get-queue-url --queue-name "$1" --query QueueUrl --output text; }
attribute() {
  aws sqs get-queue-attributes --queue-url "$QUEUE_URL" --attribute-names "$1" \\
    --query "Attributes.$1" --output text
}
sources() { aws sqs list-dead-letter-source-queues --queue-url "$QUEUE_URL" --query 'queueUrls[0]' --output text; }
use_queue() {                          # sets QUEUE and everything that depends on it
  export QUEUE="$1" QUEUE_URL QUEUE_ARN DLQ_ARN DLQ_URL
  QUEUE_URL="$(url "$QUEUE")"
  QUEUE_ARN="$(attribute QueueArn)"
  DLQ_ARN="$(attribute RedrivePolicy | grep -o 'arn:[^"]*')"
  # A dead-letter queue: it has no redrive policy itself, but other queues name it in theirs.
  if [ -z "$DLQ_ARN" ] && [[ "$(sources)" == http* ]]; then DLQ_ARN="$QUEUE_ARN"; fi
  DLQ_URL="${DLQ_ARN:+$(url "${DLQ_ARN##*:}")}"
}
use_queue "$QUEUE"
export NOW="$(date +%s)"
export SINCE="$((NOW - 3600))"         # an hour ago\
"""


def attributes(look_for: str) -> Check:
    return Check(
        "The queue's own counts and settings",
        'aws sqs get-queue-attributes --queue-url "$QUEUE_URL" --attribute-names All --query Attributes',
        look_for,
    )


def dead_letter_attributes(look_for: str) -> Check:
    return Check(
        "The dead-letter queue's counts and retention",
        'aws sqs get-queue-attributes --queue-url "$DLQ_URL" --attribute-names All --query Attributes',
        look_for,
    )


def dead_letter_sources(look_for: str) -> Check:
    return Check(
        "Which queues send their dead letters here",
        'aws sqs list-dead-letter-source-queues --queue-url "$QUEUE_URL" --query queueUrls',
        look_for,
    )


def move_tasks(look_for: str) -> Check:
    return Check(
        "Redrive tasks of the dead-letter queue",
        'aws sqs list-message-move-tasks --source-arn "$DLQ_ARN" --max-results 10',
        look_for,
    )


def tags(look_for: str) -> Check:
    return Check("Who owns the queue", 'aws sqs list-queue-tags --queue-url "$QUEUE_URL"', look_for)


def metric(name: str, statistic: str, look_for: str) -> Check:
    return Check(
        f"{name} of the last hour, in steps of five minutes",
        f"aws cloudwatch get-metric-statistics --namespace AWS/SQS --metric-name {name} "
        '--dimensions Name=QueueName,Value="$QUEUE" --start-time "$SINCE" --end-time "$NOW" '
        f"--period 300 --statistics {statistic} --query 'sort_by(Datapoints,&Timestamp)[].[Timestamp,{statistic}]' "
        "--output table",
        look_for,
    )


def lambda_metric(name: str, statistic: str, look_for: str) -> Check:
    return Check(
        f"{name} of the consuming function, in steps of five minutes",
        f"aws cloudwatch get-metric-statistics --namespace AWS/Lambda --metric-name {name} "
        '--dimensions Name=FunctionName,Value="$FUNCTION" --start-time "$SINCE" --end-time "$NOW" '
        f"--period 300 --statistics {statistic} --query 'sort_by(Datapoints,&Timestamp)[].[Timestamp,{statistic}]' "
        "--output table",
        look_for,
    )


def consumers(look_for: str) -> Check:
    return Check(
        "The Lambda functions that consume the queue",
        'aws lambda list-event-source-mappings --event-source-arn "$QUEUE_ARN" '
        "--query 'EventSourceMappings[].[FunctionArn,State,BatchSize,FunctionResponseTypes,LastProcessingResult]' --output "
        "table",
        look_for,
    )


def function(look_for: str) -> Check:
    return Check(
        "The function's timeout, memory and last change",
        'aws lambda get-function-configuration --function-name "$FUNCTION" '
        "--query '[Timeout,MemorySize,LastModified,LastUpdateStatus]'",
        look_for,
    )


def concurrency(look_for: str) -> Check:
    return Check(
        "The function's reserved concurrency",
        'aws lambda get-function-concurrency --function-name "$FUNCTION"',
        look_for,
    )


def service(look_for: str) -> Check:
    return Check(
        "The ECS service that consumes the queue",
        'aws ecs describe-services --cluster "$CLUSTER" --services "$SERVICE" '
        "--query 'services[].[runningCount,desiredCount,deployments[].rolloutState,events[:5].message]'",
        look_for,
    )


def message_logs(look_for: str) -> Check:
    return Check(
        "What the consumer logged about the message",
        'aws logs filter-log-events --log-group-name "$LOG_GROUP" --start-time "${SINCE}000" '
        '--filter-pattern "\\"$MESSAGE_ID\\"" --query \'events[].message\' --output text',
        look_for,
    )


def error_logs(look_for: str) -> Check:
    return Check(
        "The consumer's errors of the last hour",
        'aws logs filter-log-events --log-group-name "$LOG_GROUP" --start-time "${SINCE}000" '
        "--filter-pattern '?ERROR ?Exception ?\"Task timed out\"' --max-items 50 --query 'events[].message' --output text",
        look_for,
    )


def changes(event: str, look_for: str) -> Check:
    return Check(
        f"Who called {event} recently",
        f'aws cloudtrail lookup-events --lookup-attributes AttributeKey=EventName,AttributeValue={event} --start-time "$SINCE" '
        "--max-items 20 --query 'Events[].[EventTime,Username,Resources]'",
        look_for,
    )
