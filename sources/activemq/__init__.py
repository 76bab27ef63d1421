"""ActiveMQ Classic: advisories and broker statistics over STOMP, translated into telemetry events."""
