"""Variables that begin like the configuration's, but set none of its keys: those of other parts, and misspelt ones."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

from streaming.config.document import ENV_PREFIX, ENV_SEPARATOR, KeyPath
from streaming.config.errors import ConfigError
from streaming.config.external_sections import EXTERNAL_SECTIONS

_OF_OTHER_PARTS: Final = re.compile(
    r"TO|CONSUMER|DISABLED|SCOPE|LINEAGE_ATTRIBUTE|EXIT_DEADLINE_S"
    r"|(TOKEN|KAFKA_USERNAME|KAFKA_PASSWORD)(_FILE)?"
    r"|(LAMBDA|PROXY)_.+"  # the application's library
    r"|URL|OFF|QUEUE|SERVICE"  # Workers, and `queuewatch explain`
    r"|CACHE|SPARK_JARS|EXAMPLES|TEST_SERVICES"
    r"|ACTIVEMQ_PASSWORD|CLOUDFLARE_TOKEN"
)
_SERVICE_LINK: Final = re.compile(r"(.+_)?(SERVICE_(HOST|PORT(_.+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
"""What Kubernetes sets in every pod for a service whose name begins with `queuewatch`; `…_PORT` is recognised by its value."""
_LINK_VALUE: Final = re.compile(r"(tcp|udp|sctp)://")
_ALIKE: Final = 0.8


def misspelt(env: Mapping[str, str], values: Mapping[str, Any], model: type[BaseModel]) -> list[ConfigError]:
    """Return an error for each variable that would be a key of `model` with two underscores in place of one.

    `values` are those of the configuration, which may name variables of its own.
    """
    names = _unknown(env, values, model)
    keys = _by_single_underscores(model) if names else {}
    return [
        ConfigError(
            "",
            "two underscores separate a section from its key",
            f"Did you mean {keys[name]}?",
            f"environment variable {ENV_PREFIX}{name}",
        )
        for name in names
        if name in keys
    ]


def unread(env: Mapping[str, str], values: Mapping[str, Any], model: type[BaseModel]) -> Iterator[str]:
    """Return a warning for each other variable that no part of queuewatch reads."""
    names = _unknown(env, values, model)
    keys = _by_single_underscores(model) if names else {}
    for name in names:
        near = difflib.get_close_matches(name, keys, n=1, cutoff=_ALIKE)
        fix = f"did you mean {keys[near[0]]}?" if near else f"a key is set by {ENV_PREFIX}SECTION{ENV_SEPARATOR}KEY"
        yield f"{ENV_PREFIX}{name} is not read: {fix}"


def _unknown(env: Mapping[str, str], values: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """Return the names, without the prefix, of variables that neither the configuration nor another part reads."""
    named = set(_named(values))
    return [
        rest
        for name in sorted(env)
        if (rest := name.removeprefix(ENV_PREFIX)) != name
        and ENV_SEPARATOR not in rest
        and rest.lower() not in model.model_fields
        and name not in named
        and not _OF_OTHER_PARTS.fullmatch(rest)
        and not _SERVICE_LINK.fullmatch(rest)
        and not _LINK_VALUE.match(env[name])
    ]


def _named(value: Any) -> Iterator[str]:
    """Return the variables that the configuration names, such as `password_env` of a collector."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _named(item)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(inner, str) and str(name).endswith("_env"):
                yield inner
            yield from _named(inner)


def _by_single_underscores(model: type[BaseModel]) -> dict[str, str]:
    """Return the variable of each key by the same name with single underscores."""
    keys = list(_keys(model, ()))
    for section, load in EXTERNAL_SECTIONS.items():
        with contextlib.suppress(ValueError):  # a collector that cannot be loaded
            keys += [section, *_keys(load(), section)]
    return {"_".join(parts): ENV_PREFIX + ENV_SEPARATOR.join(parts) for parts in ([str(p).upper() for p in key] for key in keys)}


def _keys(model: type[BaseModel], key: KeyPath) -> Iterator[KeyPath]:
    for name, field in model.model_fields.items():
        yield (*key, name)
        below = _section(field.annotation)
        if below is not None:
            yield from _keys(below, (*key, name))


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the model in `Model` or `Model | None`; the entries of a list cannot be set one by one."""
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next((option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None)
