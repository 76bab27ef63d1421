"""`python deploy/reference.py [--check]`: write queuewatch.yaml, the reference of every configuration key.

It is generated from the models: their defaults, their docstrings, and the catalogue for the purpose of each threshold. The file
itself changes no setting; keys that are off by default are commented out.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from alerts.catalogue import CATALOGUE, UNUSED_THRESHOLDS  # noqa: E402 -- run as a script, it must find the project first
from alerts.units import number  # noqa: E402
from streaming.config.external_sections import EXTERNAL_SECTIONS  # noqa: E402
from streaming.config.model import Config  # noqa: E402
from streaming.config.section import FromEnvironment  # noqa: E402
from streaming.core.thresholds import LARGEST, Thresholds, accepted  # noqa: E402
from streaming.judge.slow_consumer import StrategyParams  # noqa: E402

OUT = ROOT / "deploy" / "queuewatch.yaml"
WIDTH = 118

HEAD = """\
# Every configuration key of queuewatch, with its default. Generated from the models by deploy/reference.py; do not edit.
#
# Any key may be overridden by an environment variable: QUEUEWATCH_ and the path of the key, two underscores for each
# step down, for example QUEUEWATCH_HTTP__PORT=9500. A list is given as comma-separated text, a list of mappings as YAML:
# QUEUEWATCH_QUEUES='[{pattern: "orders*", thresholds: {stalled_s: 1800}}]'. A mapping changes the keys that it names, at any
# depth; a list replaces the file's; an empty variable gives the key its default. Keys that are commented out are off by default.
# A variable that no part of queuewatch knows is refused or warned about.
# Passwords and tokens are never written here: give the name of a file, or the environment variable.
"""

# Example values for keys without a useful default.
EXAMPLES: Mapping[str, str] = {
    "source.kafka.bootstrap_servers": "[kafka:9092]",
    "source.kafka.topics": "[queuewatch-events]",
    "source.spool.folder": "/var/lib/queuewatch/spool",
    "signal_log.kafka.bootstrap_servers": "[kafka:9092]",
    "signal_log.kafka.topic": "queuewatch-signals",
    "quarantine.kafka.bootstrap_servers": "[kafka:9092]",
    "quarantine.kafka.topic": "queuewatch-quarantine",
    "queues.pattern": '"orders*"',
    "queues.thresholds": "{stalled_s: 1800, poison_receives: 5}",
    "collect.cloudflare.backoff.queues": '["orders*"]',
    "collect.cloudflare.backoff.first_s": "30",
    "collect.cloudflare.drain.queue": "queuewatch-telemetry",
    "collect.sqs.telemetry.queue": "queuewatch-telemetry",
    "alerts.objectives": "{orders-30s: {queues: 'orders.*', within_s: 30, ratio: 0.99}}",
    "collect.to": "kafka://kafka:9092/queuewatch-events",
    "collect.cloudflare.account_id": "0123456789abcdef0123456789abcdef",
    "alerts.rules": "{MessageTooOld: {limit: 600, exclude_queues: 'dev-.*'}, NoisyGroup: {enabled: false}}",
}


def reference() -> str:
    """Return the text of the file."""
    lines = [HEAD]
    for name, info in Config.model_fields.items():
        section = list(_key(Config, name, info, (), "", off=False))
        lines += [*section, ""] if section else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _key(
    owner: type[BaseModel],
    name: str,
    info: FieldInfo,
    above: tuple[str, ...],
    pad: str,
    *,
    off: bool,
    in_list: tuple[str, ...] | None = None,
) -> Iterator[str]:
    """Return the lines of a key and everything below it. With `off`, keys begin with `#`; comments begin with `# `.

    `in_list`: the list that the key's section is an entry of.
    """
    path = (*above, name)
    dotted = ".".join(path)
    model, many = _model_of(info, path)
    if dotted in EXAMPLES:
        model = None
    words = _docstrings(owner).get(name) or (_first_sentence(model) if model is not None else _about(owner, name))
    words = f"{words} {_choices(info.annotation)}".strip()
    yield from (f"{pad}# {line}" for line in textwrap.wrap(words, WIDTH - len(pad) - 2))
    if any(isinstance(mark, FromEnvironment) for mark in info.metadata):
        variable = f"QUEUEWATCH_{'__'.join(part.upper() for part in (in_list or path))}"
        # The environment overrides a list as a whole.
        what = "the environment variable" if in_list is None else "the whole list in the environment variable"
        yield f"{pad}# {name}: only by {what} {variable}"
        return
    if model is None:
        value, is_off = _value(owner, name, info, dotted)
        yield f"{pad}#{name}: {value}" if off or is_off else f"{pad}{name}: {value}"
        return
    off = off or many or _is_off(info)
    inner_pad = pad + ("    " if many else "  ")
    in_list = path if many else in_list
    fields = model.model_fields.items()
    below = [line for n, inner in fields for line in _key(model, n, inner, path, inner_pad, off=off, in_list=in_list)]
    if many:
        # A list has one example entry, which begins at its first key.
        first = next(i for i, line in enumerate(below) if line.startswith(f"{inner_pad}#") and line[len(inner_pad) + 1] != " ")
        below[first] = below[first].replace(f"{inner_pad}#", f"{pad}#  - ", 1)
        below = [line.replace(f"{inner_pad}#", f"{pad}#    ", 1) if _is_key(line) else line for line in below]
    # A section without keys would be an error when the file is read.
    yield f"{pad}{name}:" if any(not line.lstrip().startswith("#") for line in below) else f"{pad}#{name}:"
    yield from below


def _is_key(line: str) -> bool:
    """Return whether a line is a commented-out key rather than a comment."""
    bare = line.lstrip()
    return bare.startswith("#") and bare[1] != " "


def _model_of(info: FieldInfo, path: tuple[str, ...]) -> tuple[type[BaseModel] | None, bool]:
    """Return the section's model, if the key is a section, and whether it is a list of sections."""
    if path in EXTERNAL_SECTIONS:
        return EXTERNAL_SECTIONS[path](), False
    if isinstance(info.default_factory, type) and issubclass(info.default_factory, BaseModel):
        return info.default_factory, False
    if isinstance(info.default, BaseModel):
        return type(info.default), False
    found = list(_types(info.annotation))
    if _is_mapping(info.annotation):
        return None, False
    for kind in found:
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not BaseModel:
            return kind, get_origin(info.annotation) is tuple
    return None, False


def _is_mapping(annotation: Any) -> bool:
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    if get_origin(annotation) in (Union, UnionType, tuple):
        for inner in get_args(annotation):
            yield from _types(inner)


def _choices(annotation: Any) -> str:
    """Return the sentence that names the values of a key which takes only some words; empty for any other key."""
    words = [str(word) for kind in _types(annotation) if get_origin(kind) is Literal for word in get_args(kind)]
    return f"One of {', '.join(words)}." if words else ""


def _is_off(info: FieldInfo) -> bool:
    return info.default_factory is None and info.default in (None, PydanticUndefined)


def _value(owner: type[BaseModel], name: str, info: FieldInfo, dotted: str) -> tuple[str, bool]:
    """Return the value to show, and whether the key is off by default."""
    if dotted in EXAMPLES:
        return EXAMPLES[dotted], True
    if owner.__name__ == "ThresholdOverrides":
        return number(getattr(Thresholds(), name)), False
    if owner.__name__ == "StrategyOverrides":
        return _yaml(getattr(StrategyParams(), name)), True
    default = info.get_default(call_default_factory=True)
    if default is None or default is PydanticUndefined:
        return _kind(info.annotation), True
    return _yaml(default), False


def _kind(annotation: Any) -> str:
    """Return a placeholder for a value of this type."""
    names = [getattr(kind, "__name__", "") for kind in _types(annotation)]
    return next((word for key, word in _KINDS.items() if key in names), "...")


_KINDS = {"Path": "/path/to/file", "bool": "true", "int": "0", "float": "0", "str": "..."}


def _yaml(value: Any) -> str:
    # JSON is valid YAML, on one line and with safe quoting.
    if isinstance(value, frozenset | tuple | list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_yaml(k)}: {_yaml(v)}" for k, v in value.items()) + "}"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _about(owner: type[BaseModel], name: str) -> str:
    """Return the alerts that use a threshold, and the longest time it may be if that is a limit in practice."""
    if owner.__name__ != "ThresholdOverrides":
        return ""
    used = [entry.name for entry in CATALOGUE if name in entry.thresholds]
    most = accepted(name).most
    longest = f" At most {number(most)}." if name.endswith("_s") and most < LARGEST else ""
    return f"{', '.join(used)}.{longest}" if used else UNUSED_THRESHOLDS.get(name, "")


def _first_sentence(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


@cache
def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the string literal below each field, for the model and its base classes."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if owner in (BaseModel, object) or owner.__module__.startswith("pydantic"):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        except (OSError, TypeError):
            # A model created at run time has no source.
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for statement, following in pairwise(body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            ):
                found[statement.target.id] = " ".join(following.value.value.split())
    return found


def main() -> int:
    """Return 0, or 1 if `--check` finds the file out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    text = reference()
    if parser.parse_args().check:
        if not OUT.exists() or OUT.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{OUT.relative_to(ROOT)} is out of date: run python deploy/reference.py\n")
            return 1
        return 0
    OUT.write_text(text, encoding="utf-8")
    return 0


assert {f.name for f in fields(Thresholds)} >= UNUSED_THRESHOLDS.keys()

if __name__ == "__main__":
    sys.exit(main())
