"""The life of a message with aioboto3: python life_aio.py QUEUE_NAME."""

import asyncio
import json
import sys

import aioboto3


async def main() -> None:
    """Make the same calls as the programs in the other languages."""
    async with aioboto3.Session().client("sqs") as client:
        url = (await client.get_queue_url(QueueName=sys.argv[1]))["QueueUrl"]
        await client.send_message(QueueUrl=url, MessageBody="héllo")
        [message] = (await client.receive_message(QueueUrl=url, WaitTimeSeconds=5))["Messages"]
        handle = message["ReceiptHandle"]
        await client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=60)
        await client.delete_message(QueueUrl=url, ReceiptHandle=handle)
        sys.stdout.write(json.dumps({"body": message["Body"], "attributes": len(message.get("Attributes", {}))}))


asyncio.run(main())
