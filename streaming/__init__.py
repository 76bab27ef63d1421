"""The pipeline: tracking core, judging rules, Spark adapters, configuration and commands."""
