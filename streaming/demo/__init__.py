"""A small shop with typical queue problems on a local stand-in for SQS, for `queuewatch demo`."""
