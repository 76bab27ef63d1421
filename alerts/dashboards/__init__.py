"""Grafana dashboards, generated from the same catalogue and thresholds as the alerts."""
