"""What rules ask about a queue in its present and its last minutes, computed once for each evaluation."""
