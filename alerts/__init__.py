"""The catalogue of signals, and the files generated from it."""
