"""The reasons of losses as columns: very many messages can be lost within minutes, and few reasons differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streaming.core.columns import Array


def pack_reasons(reasons: Mapping[int, str]) -> tuple[dict[str, Array], list[str]]:
    """Return the columns of the reasons by key, and the distinct reasons, to which the columns refer by position."""
    position = {reason: i for i, reason in enumerate(dict.fromkeys(reasons.values()))}
    columns: dict[str, Array] = {
        "lost.key": np.fromiter(reasons, dtype=np.uint64, count=len(reasons)),
        "lost.reason": np.fromiter(map(position.__getitem__, reasons.values()), dtype=np.int32, count=len(reasons)),
    }
    return columns, list(position)


def unpack_reasons(columns: Mapping[str, Array], distinct: Sequence[str]) -> dict[int, str]:
    """Return what `pack_reasons` was given."""
    return dict(zip(columns["lost.key"].tolist(), map(distinct.__getitem__, columns["lost.reason"].tolist()), strict=True))
