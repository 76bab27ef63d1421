"""A recording as one self-contained page: ages, depths and signals over time, and the attempts of the messages they name."""
