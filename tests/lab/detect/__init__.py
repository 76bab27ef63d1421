"""Tests of the rules in the comparison, each on examples from its own source."""
