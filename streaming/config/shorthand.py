"""Shorter forms that people write in a configuration file or a variable, in the form that the models accept."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


def spelled_out(model: type[BaseModel], values: Any) -> Any:
    """Return `values`, the data for `model`, without keys that have no value, and with lists where text stands for one.

    A section whose lines are all commented out has no value, and gets its defaults. Where null means something, it stays.
    Text for a list of texts is split at its commas, as in `QUEUEWATCH_COLLECT__SQS__REGIONS=eu-west-1,us-east-1`.
    """
    if not isinstance(values, dict):
        return values
    kept: dict[Any, Any] = {}
    for name, value in values.items():
        field = model.model_fields.get(name)
        if field is None:
            kept[name] = value
            continue
        kinds = list(kinds_of(field.annotation))
        if value is not None or type(None) in kinds or Any in kinds:
            kept[name] = _fitted(value, kinds)
    return kept


def _fitted(value: Any, kinds: list[Any]) -> Any:
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            value = spelled_out(kind, value)
        elif get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
            items = list(kinds_of(get_args(kind)[0]))
            if isinstance(value, list):
                value = [_fitted(item, items) for item in value]
            elif isinstance(value, str) and str in items:
                value = [part.strip() for part in value.split(",") if part.strip()]
    return value


def kinds_of(annotation: Any) -> Iterator[Any]:
    """Return the types of `Annotated[X | Y, …]`."""
    if get_origin(annotation) is Annotated:
        yield from kinds_of(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for kind in get_args(annotation):
            yield from kinds_of(kind)
    else:
        yield annotation
