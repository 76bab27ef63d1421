"""The HTML report of a recording: ages, depths and signals over time, and the attempts of the named messages."""
