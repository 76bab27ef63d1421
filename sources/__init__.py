"""The sources of telemetry: wire format, client instrumentation and collectors."""
