"""What the judge remembers between evaluations: of each queue, what fires, and when each is due again."""
