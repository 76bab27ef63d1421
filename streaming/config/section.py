"""The base class and common types of all configuration sections."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split), Field(min_length=1)]
"""A list with at least one item; also accepted as comma-separated text, for environment variables."""


class FromEnvironment:
    """Marks a field that can only be set by an environment variable, never in the file."""


Secret = Annotated[SecretStr | None, FromEnvironment()]
"""A password or token. In the configuration file, the key `…_file` names the file that contains it."""


class Section(BaseModel):
    """A frozen mapping with known keys; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
