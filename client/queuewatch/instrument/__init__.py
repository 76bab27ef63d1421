"""`queuewatch-instrument COMMAND…`: every SQS client that a Python process makes is watched, without a line changed."""
