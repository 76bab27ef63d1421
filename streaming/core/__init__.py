"""The tracking core: `(state, events, now) -> (state, report)`, pure."""
