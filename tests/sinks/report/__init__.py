"""The page of a replay."""
