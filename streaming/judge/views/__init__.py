"""The results as plain values that are published: of each queue, and of folded queues together."""
