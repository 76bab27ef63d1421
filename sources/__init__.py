"""Where telemetry comes from: wire format, client instrumentation and collectors."""
