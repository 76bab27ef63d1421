"""Real faults of real processes, and a table of what each costs. `make faults`."""
