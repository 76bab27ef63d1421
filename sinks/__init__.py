"""Destinations of results: metrics, status page, API, Alertmanager and the signal log."""
