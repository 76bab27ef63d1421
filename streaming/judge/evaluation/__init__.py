"""The result of judging one queue, and how long it remains valid."""
