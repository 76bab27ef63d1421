"""Detection side by side: queuewatch's defaults and the alarms people have today, on the same runs with known faults."""
