"""Load a `Config` from a file and the environment, or raise errors that say where the problem is and how to fix it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sources.collect.registry import ELSEWHERE
from streaming.config.document import ENV_PREFIX, Document, KeyPath, dotted_name, override, read_document
from streaming.config.errors import ConfigError, ConfigErrors
from streaming.config.external_sections import EXTERNAL_SECTIONS
from streaming.config.model import CollectSection, Config
from streaming.config.names import is_secret_key, model_at, nearest, secret_keys
from streaming.config.other_variables import misspelt
from streaming.config.section import NEEDS_SECRET
from streaming.config.shorthand import spelled_out

_SHOWN = 80
REFERENCE = "The reference, deploy/queuewatch.yaml, shows every key"
_WANTED = {
    "tuple_type": "must be a list, such as [a, b]",
    "model_type": "must be a section: its keys are indented below it",
    "dict_type": "must be a section: its keys are indented below it",
    "string_type": "must be text: put it in quotes",
    "int_parsing": "must be an integer",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
}
"""What a value must be, by pydantic's type of error; its own messages name types of Python."""


def load_config(path: Path | None, env: Mapping[str, str] | None = None) -> Config:
    """Load the configuration in `path` (None: defaults), overridden by `QUEUEWATCH_…` variables of `env` (None: the process').

    Raises `ConfigErrors` with all errors, or `ConfigError` if the file cannot be read at all.
    """
    written = read_document(path) if path is not None else Document()
    env = os.environ if env is None else env
    document = override(written, env, Config.model_fields, partial(is_secret_key, Config))
    with_nul = [
        ConfigError(dotted_name(key).replace("\0", "\\0"), "has a NUL byte", "Remove it", document.where(key))
        for key in _with_nul(document.values)
    ]
    if with_nul:
        # No file, host or topic has one in its name, and what refuses it names no key.
        raise ConfigErrors(with_nul)
    ours, theirs = _split(document.values)
    errors = misspelt(env, document.values, Config) + _secrets_in_file(Config, ours, document)
    config: Config | None = None
    try:
        config = Config.model_validate(spelled_out(Config, ours))
    except ValidationError as error:
        errors += _translate(error, Config, (), document)
    external: dict[KeyPath, BaseModel] = {}
    for key, values in theirs.items():
        try:
            model = EXTERNAL_SECTIONS[key]()
        except ValueError as error:
            fix = "Correct its installation, or remove the section"
            errors.append(ConfigError(dotted_name(key), str(error), fix, document.where(key)))
            continue
        errors += _secrets_in_file(model, values, document, key)
        try:
            external[key] = model.model_validate(spelled_out(model, values))
        except ValidationError as error:
            errors += _translate(error, model, key, document)
    if errors or config is None:
        raise ConfigErrors(errors)
    collect = {str(key[1]): model for key, model in external.items() if key[0] == "collect"}
    others = {str(key[0]): model for key, model in external.items() if key[0] != "collect"}
    return config.model_copy(update={"collect": config.collect.model_copy(update=collect), **others})


def _with_nul(value: Any, key: KeyPath = ()) -> Iterator[KeyPath]:
    if isinstance(value, str) and "\0" in value:
        yield key
    elif isinstance(value, dict | list):
        for name, below in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(name, str) and "\0" in name:
                yield (*key, name)
            yield from _with_nul(below, (*key, name))


def _split(values: dict[str, Any]) -> tuple[dict[str, Any], dict[KeyPath, Any]]:
    """Split the values into sections of the service's own model and external sections by key."""
    ours = dict(values)
    theirs: dict[KeyPath, Any] = {}
    for key in EXTERNAL_SECTIONS:
        outer, name = ours, str(key[-1])
        if len(key) == 2:
            section = ours.get(str(key[0]))
            if not isinstance(section, dict):
                continue
            outer = ours[str(key[0])] = dict(section)
        if outer.get(name) is not None:
            theirs[key] = outer.pop(name)
    return ours, theirs


def _secrets_in_file(model: type[BaseModel], values: Any, document: Document, prefix: KeyPath = ()) -> list[ConfigError]:
    found = []
    for key in secret_keys(model, values, prefix):
        if key in document.from_file:
            name = dotted_name(key)
            fix = f"Write it to a file and set {name}_file, or set {_variable(key)}"
            found.append(ConfigError(name, "is a secret and must not be in the file", fix, document.where(key)))
    return found


def _variable(key: KeyPath) -> str:
    """Return the environment variable that sets `key`. The environment overrides a list as a whole."""
    depth = next((i for i, part in enumerate(key) if isinstance(part, int)), len(key))
    variable = ENV_PREFIX + "__".join(str(part).upper() for part in key[:depth])
    return variable if depth == len(key) else f"{variable} to the whole list"


def _translate(error: ValidationError, model: type[BaseModel], prefix: KeyPath, document: Document) -> list[ConfigError]:
    details = error.errors()
    refused = {tuple(detail["loc"])[:depth] for detail in details for depth in range(len(detail["loc"]))}
    # A list whose entries were refused is then too short as well.
    details = [detail for detail in details if detail["type"] != "too_short" or tuple(detail["loc"]) not in refused]
    found = [_translate_one(detail, model, prefix, document) for detail in details]
    order = {key: position for position, key in enumerate(document.origins)}
    return [e for _, e in sorted(found, key=lambda pair: order.get(pair[0], len(order)))]


def _translate_one(
    detail: ErrorDetails, model: type[BaseModel], prefix: KeyPath, document: Document
) -> tuple[KeyPath, ConfigError]:
    inner: KeyPath = tuple(detail["loc"])
    key = (*prefix, *inner)
    name, where = dotted_name(key), document.where(key)
    kind = detail["type"]
    if kind == "extra_forbidden":
        guesses = nearest(model, inner[:-1], str(inner[-1]))
        if guesses == [inner[-1]]:
            fix = f"`{inner[-1]}` is a top-level key: do not indent it"
        elif guesses:
            fix = f"Did you mean {' or '.join(f'`{guess}`' for guess in guesses)}?"
        else:
            section = model_at(model, inner[:-1])
            fix = f"Known keys here: {', '.join(sorted(section.model_fields))}" if section else REFERENCE
            if section is CollectSection:
                fix += f". {ELSEWHERE[:1].upper()}{ELSEWHERE[1:]}"
        return key, ConfigError(name, "unknown key", fix, where)
    if kind == "missing":
        return key, ConfigError(name, "is required", f"Add it. {REFERENCE}", where)
    if kind == NEEDS_SECRET:
        secret = (*key, str(detail["ctx"]["secret"]))
        return key, ConfigError(name, str(detail["msg"]), f"Set {dotted_name(secret)}_file, or set {_variable(secret)}", where)
    if kind == "value_error":
        message = str(detail["msg"]).removeprefix("Value error, ")
        return key, ConfigError(name, message, REFERENCE, where)
    message = _WANTED.get(kind, str(detail["msg"]))
    problem = f"{message[:1].lower()}{message[1:]}{_shown(detail, model, inner)}"
    return key, ConfigError(name, problem, REFERENCE, where)


def _shown(detail: ErrorDetails, model: type[BaseModel], key: KeyPath) -> str:
    """Return the offending value if it is short and not a secret."""
    section = model_at(model, key[:-1])
    name = str(key[-1]) if key else ""
    secret = "password" in name or "token" in name or "secret" in name
    if section is None or secret or not isinstance(detail.get("input"), str | int | float | bool):
        return ""
    return f", not {str(detail['input'])[:_SHOWN]!r}"
