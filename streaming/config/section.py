"""The base class and common types of all configuration sections."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from streaming.config.shorthand import kinds_of

LONGEST_S: Final = 1e9
"""The longest duration, in seconds: thirty years. Far longer ones do not fit where times are computed in milliseconds."""

Seconds = Annotated[float, Field(ge=0)]
# Larger ones do not fit the 64 bits in which they are computed with.
Count = Annotated[int, Field(ge=1, le=10**12)]
Bytes = Annotated[int, Field(ge=1, le=10**18)]


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split), Field(min_length=1)]
"""A list with at least one item; also accepted as comma-separated text, for environment variables."""


def _as_properties(value: Any) -> Any:
    return {name: _as_property(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def _as_property(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Properties = Annotated[dict[str, str], BeforeValidator(_as_properties)]
"""Settings of a Java program; numbers and booleans become the text that Java reads."""


class FromEnvironment:
    """Marks a field that can only be set by an environment variable, never in the file."""


Secret = Annotated[SecretStr | None, FromEnvironment()]
"""A password or token. In the configuration file, the key `…_file` names the file that contains it."""


NOT_A_TOKEN: Final = "has characters that cannot be sent in a header: a token is one line of printable ASCII"


def is_token(text: str) -> bool:
    """Whether a bearer token can be sent in a header; if not, say `NOT_A_TOKEN`: a client's own error would quote it."""
    return text.isascii() and text.isprintable() and text == text.strip()


def secret_of(given: SecretStr | None, file: Path | None) -> str | None:
    """Return a secret, or the content of its file without white space around it; None where neither is given.

    Raises `OSError` if the file cannot be read, `ValueError` if it is not text.
    """
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text") from None  # that error would quote it


NEEDS_SECRET: Final = "needs_secret"
"""The type of an error about a missing secret. Its context names the key as `secret`; the model does not know its own place."""


class Section(BaseModel):
    """A frozen mapping with known keys; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_not_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads `port: yes` as a boolean, which pydantic takes for 1."""
        if isinstance(value, bool):
            kinds = set(kinds_of(cls.model_fields[str(info.field_name)].annotation))
            if kinds & {int, float} and bool not in kinds:
                raise ValueError(f"must be a number, not {str(value).lower()}")
        return value

    @field_validator("*")
    @classmethod
    def _durations_end(cls, value: Any, info: ValidationInfo) -> Any:
        """Durations are the numbers whose names end in `_s`."""
        is_duration = isinstance(value, int | float) and str(info.field_name).endswith("_s")
        if is_duration and not 0 <= value <= LONGEST_S:
            raise ValueError(f"must be a number of seconds from 0 to {LONGEST_S:.0f}, not {value}")
        return value
