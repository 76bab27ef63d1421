"""Detection compared: queuewatch's defaults and common alarms, on the same runs with known faults."""
