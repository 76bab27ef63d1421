"""Telemetry from files in a folder on this machine: which were read, which are next, and reading them."""
