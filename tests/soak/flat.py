"""Detection of growth in a series of samples."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

WARM_UP: Final = 0.4
"""The part of a run in which Java compiles, pools fill and the kept versions accumulate."""


def growth(samples: Sequence[float]) -> float:
    """Return the relative growth from the first quarter after the warm-up to the last one, by their medians.

    Raises `ValueError` when there are too few samples to tell.
    """
    rest = samples[int(len(samples) * WARM_UP) :]
    quarter = len(rest) // 4
    if quarter < 3:
        raise ValueError(f"{len(samples)} samples are too few to tell")
    early, late = median(rest[:quarter]), median(rest[-quarter:])
    return (late - early) / early if early > 0 else float(late > 0)
