// A message's life with the AWS SDK for JavaScript, version 3: node life.mjs QUEUE_NAME [QUEUE_URL]
import {
  ChangeMessageVisibilityCommand,
  DeleteMessageCommand,
  GetQueueUrlCommand,
  ReceiveMessageCommand,
  SendMessageCommand,
  SQSClient,
} from "@aws-sdk/client-sqs";

const client = new SQSClient({});
const [, , QueueName, given] = process.argv;
const QueueUrl = given ?? (await client.send(new GetQueueUrlCommand({ QueueName }))).QueueUrl;
await client.send(new SendMessageCommand({ QueueUrl, MessageBody: "héllo" }));
const { Messages } = await client.send(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 5 }));
const [{ Body, Attributes, ReceiptHandle }] = Messages;
await client.send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 60 }));
await client.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle }));
console.log(JSON.stringify({ body: Body, attributes: Object.keys(Attributes ?? {}).length }));
