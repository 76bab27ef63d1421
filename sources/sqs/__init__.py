"""Amazon SQS from outside: queue attributes, redrive tasks, and a telemetry queue of the service's own."""
