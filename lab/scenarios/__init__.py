"""Scenarios: what is sent, who consumes it, and which fault occurs when."""
