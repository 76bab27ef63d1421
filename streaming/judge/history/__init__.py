"""Samples of the past of every queue, as one table, and windows of it as rules read them."""
