"""Scenarios: what is sent, who works on it, and what goes wrong when."""
