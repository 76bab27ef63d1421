"""Where results go: metrics, status page, API, Alertmanager and the signal log."""
