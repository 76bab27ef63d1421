// A message's life with the AWS SDK for Go, version 2: go run . QUEUE_NAME
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

func main() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	check(err)
	client := sqs.NewFromConfig(cfg)
	queue, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(os.Args[1])})
	check(err)
	url := queue.QueueUrl
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("héllo")})
	check(err)
	got, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 5})
	check(err)
	message := got.Messages[0]
	_, err = client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: url, ReceiptHandle: message.ReceiptHandle, VisibilityTimeout: 60})
	check(err)
	_, err = client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: message.ReceiptHandle})
	check(err)
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{"body": message.Body, "attributes": len(message.Attributes)}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
