"""What the configuration sections of all collectors have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=1e9)]
"""A duration. Thirty years are the most: far longer ones do not fit where times are computed in milliseconds."""


class CollectorSection(BaseModel):
    """A frozen mapping with known keys; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
