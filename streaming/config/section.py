"""What every section of the configuration has in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1)]


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split), Field(min_length=1)]
"""A list of at least one; also as text with commas, which is how one writes it in an environment variable."""


class FromEnvironment:
    """Marks a field whose value may come from an environment variable only, never from the file."""


Secret = Annotated[SecretStr | None, FromEnvironment()]
"""A password or token. In the file its neighbour `…_file` names the file that holds it."""


class Section(BaseModel):
    """A frozen mapping with known keys; an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
