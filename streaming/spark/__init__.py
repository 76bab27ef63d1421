"""The Spark job; the only package that knows Spark."""
