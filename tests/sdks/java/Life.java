// A message's life with the AWS SDK for Java, version 2: java -cp … Life.java QUEUE_NAME
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.Message;

class Life {
    public static void main(String[] arguments) {
        try (SqsClient client = SqsClient.create()) {
            String url = client.getQueueUrl(r -> r.queueName(arguments[0])).queueUrl();
            client.sendMessage(r -> r.queueUrl(url).messageBody("h\u00e9llo"));
            Message message = client.receiveMessage(r -> r.queueUrl(url).waitTimeSeconds(5)).messages().get(0);
            client.changeMessageVisibility(
                    r -> r.queueUrl(url).receiptHandle(message.receiptHandle()).visibilityTimeout(60));
            client.deleteMessage(r -> r.queueUrl(url).receiptHandle(message.receiptHandle()));
            String body = message.body().equals("h\u00e9llo") ? "h\\u00e9llo" : "not what was sent";
            System.out.println("{\"body\": \"" + body + "\", \"attributes\": " + message.attributes().size() + "}");
        }
    }
}
