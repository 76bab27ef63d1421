"""A small shop with the usual troubles, on a local stand-in for SQS: what `queuewatch demo` watches."""
