"""Amazon SQS from outside: queue attributes, redrive tasks, and the service's own telemetry queue."""
