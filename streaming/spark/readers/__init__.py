"""Streams of records: columns `value` (binary), `origin` (string) and `position` (long)."""
