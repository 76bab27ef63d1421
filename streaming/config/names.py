"""Lookups in a model's keys: the nearest known key, and fields that must not be in a file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streaming.config.document import KeyPath
from streaming.config.section import FromEnvironment


def model_at(root: type[BaseModel], key: KeyPath) -> type[BaseModel] | None:
    """Return the model of the section at `key`, or None if there is none."""
    model: type[BaseModel] | None = root
    for part in key:
        if isinstance(part, int):
            continue
        if model is None or part not in model.model_fields:
            return None
        model = _model_in(model.model_fields[part].annotation)
    return model


def nearest(root: type[BaseModel], section: KeyPath, name: str) -> list[str]:
    """Return up to three known keys similar to `name` in `section`, best first, as one would write them there."""
    model = model_at(root, section)
    if model is None:
        return []
    here = list(model.model_fields)
    close = difflib.get_close_matches(name, here, n=3, cutoff=0.6)
    if close:
        return close
    below = {f"{field}.{inner}" for field, _, inner in _children(model) if inner == name}
    top_level = {f for f in root.model_fields if f == name and section}
    return sorted(below | top_level)[:3]


def secret_keys(model: type[BaseModel], value: Any, key: KeyPath = ()) -> Iterator[KeyPath]:
    """Return the keys in `value`, the data for `model`, that only the environment may set."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from secret_keys(model, item, (*key, index))
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        field = model.model_fields.get(name)
        if field is None:
            continue
        if _is_secret(field) and inner is not None:
            yield (*key, name)
        below = _model_in(field.annotation)
        if below is not None:
            yield from secret_keys(below, inner, (*key, name))


def is_secret_key(model: type[BaseModel], key: KeyPath) -> bool:
    """Whether only the environment may set the field at `key` of `model`."""
    section = model_at(model, key[:-1])
    field = section.model_fields.get(str(key[-1])) if section is not None else None
    return field is not None and _is_secret(field)


def _is_secret(field: FieldInfo) -> bool:
    return any(isinstance(mark, FromEnvironment) for mark in field.metadata)


def _children(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel], str]]:
    for name, field in model.model_fields.items():
        below = _model_in(field.annotation)
        for inner in below.model_fields if below is not None else ():
            assert below is not None
            yield name, below, inner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in `Model`, `Model | None` or `tuple[Model, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = _model_in(inner)
        if found is not None:
            return found
    return None
