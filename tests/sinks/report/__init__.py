"""The HTML report of a replay."""
