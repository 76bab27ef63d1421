"""The tracking core: `(state, events, now) -> (state, report)`, without clock, network or Spark."""
