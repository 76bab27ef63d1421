"""The contents of a checkpoint, read and written without Spark."""
