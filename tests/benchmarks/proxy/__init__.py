"""What the proxy costs, beside a bare pass-through of the same library."""
