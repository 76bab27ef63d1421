"""Bytes nobody meant, for everything that reads bytes from outside. `make fuzz`."""
