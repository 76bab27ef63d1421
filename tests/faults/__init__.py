"""Real faults of real processes: what each costs, as a table. `make faults`."""
