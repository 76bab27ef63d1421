"""The catalogue of signals and what is generated from it."""
