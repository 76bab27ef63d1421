"""Malformed bytes for everything that reads bytes from outside. `make fuzz`."""
