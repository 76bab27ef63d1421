"""`queuewatch-instrument COMMAND…`: watches every SQS client of a Python process without code changes."""
