"""An SQS consumer whose calls become telemetry. QUEUE_URL: its queue; TELEMETRY: e.g. kafka://broker:9092/queuewatch-events."""

import os

import boto3

from queuewatch import watch

sqs, url = boto3.client("sqs"), os.environ["QUEUE_URL"]
watch(sqs, to=os.environ["TELEMETRY"])
for message in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages", []):
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
