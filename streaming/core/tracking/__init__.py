"""Apply events and the passing of time to the state."""
