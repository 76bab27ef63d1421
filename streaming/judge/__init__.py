"""The judge turns the merged report into signals, by rules and memory, without clock or network."""
