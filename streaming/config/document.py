"""A YAML document as plain data with the position of each key, and overrides from the environment."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from streaming.config.errors import ConfigError, place

ENV_PREFIX: Final = "QUEUEWATCH_"
ENV_SEPARATOR: Final = "__"
_DEEPEST: Final = 32
_TOO_DEEP: Final = "it is nested too deeply"
_MOST_VALUES: Final = 100_000
"""The most values of a text shorter than this. A longer one has no more values than characters, unless its anchors multiply."""
_NOT_OF_ITS_TYPE: Final = (ValueError, TypeError, AttributeError, LookupError, OverflowError)
"""What PyYAML raises for a value that is not of its tag's type."""

KeyPath = tuple[str | int, ...]
"""The path of a value: ("queues", 0, "pattern")."""


@dataclass
class Document:
    """The values of a configuration, with the origin of each key."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    """`file:line` or `environment variable NAME` of each key."""
    from_file: frozenset[KeyPath] = frozenset()
    """The keys set in the file."""

    def where(self, key: KeyPath) -> str | None:
        """Return the origin of `key`, of its nearest parent, or of the first key below it."""
        for end in range(len(key), 0, -1):
            if key[:end] in self.origins:
                return self.origins[key[:end]]
        return next((origin for known, origin in self.origins.items() if key and known[: len(key)] == key), None)


def read_document(path: Path) -> Document:
    """Read the file. Raises `ConfigError` if it cannot be read, is not a mapping, or repeats a key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError("", f"{path} does not exist", "Check the path of the configuration file") from error
    except OSError as error:
        raise ConfigError("", f"{path} cannot be read: {error.strerror}", "It must be a readable UTF-8 text file") from error
    except UnicodeDecodeError as error:
        raise ConfigError("", f"{path} cannot be read: {error}", "It must be a readable UTF-8 text file") from error
    try:
        reader = _Reader(text, lambda node: place(path, node.start_mark.line + 1))
    except yaml.YAMLError as error:
        # A character that is not allowed anywhere in YAML.
        raise ConfigError("", f"{path} cannot be read: {' '.join(str(error).split())}", "It must be a text file") from error
    try:
        values = reader.document()
    except yaml.YAMLError as error:
        raise _not_yaml(error, path) from error
    except RecursionError as error:
        raise ConfigError("", _TOO_DEEP, "Close its brackets", str(path)) from error
    if not isinstance(values, dict):
        raise ConfigError("", "the file is not a mapping", "Begin with sections such as `source:`", place(path, 1))
    return Document(values, reader.origins, frozenset(reader.origins))


def override(
    document: Document,
    env: Mapping[str, str],
    sections: Container[str] = (),
    is_secret: Callable[[KeyPath], bool] = lambda _: False,
) -> Document:
    """Return the document with every `QUEUEWATCH_SECTION__KEY=value` of `env` applied over the file's values.

    A value that begins with `[` or `{` is parsed as YAML: a mapping changes the keys that it names, at any depth, and a list
    replaces the file's. An empty one gives the key its default, and any other is text that its field converts to a number or
    boolean. A secret is text however it begins. Variables without a double underscore do not belong to the configuration, except
    those that name one of `sections` as a whole, such as `QUEUEWATCH_QUEUES`.
    """
    values = _copy(document.values)
    origins = dict(document.origins)
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX):
            continue
        if ENV_SEPARATOR not in name and name.removeprefix(ENV_PREFIX).lower() not in sections:
            continue
        key = tuple(part.lower() for part in name.removeprefix(ENV_PREFIX).split(ENV_SEPARATOR))
        where = f"environment variable {name}"
        if not all(key):
            raise ConfigError("", "the name has an empty part", "Write QUEUEWATCH_SECTION__KEY", where)
        changed: list[KeyPath] = [key]
        if env[name] == "":
            _unset(values, key)
        else:
            changed = _put(values, key, _env_value(env[name], where, is_secret(key)), where)
        for path in changed:
            origins = {k: v for k, v in origins.items() if k[: len(path)] != path}
            origins[path] = where
    from_file = frozenset(k for k in document.from_file if k in origins and not origins[k].startswith("environment"))
    return Document(values, origins, from_file)


class _Loader(yaml.SafeLoader):
    """Counts the values that are read: with anchors, a few lines stand for millions."""

    def __init__(self, text: str, place_of: Callable[[yaml.Node], str]) -> None:
        super().__init__(text)
        self.place_of = place_of
        self._room = max(_MOST_VALUES, len(text))
        self._written: dict[int, list[tuple[Any, Any]]] = {}

    def count(self, node: yaml.MappingNode | yaml.SequenceNode) -> None:
        self._room -= len(node.value)
        if self._room < 0:
            raise ConfigError("", "it has far too many values", "Its anchors repeat one another", self.place_of(node))

    def written(self, node: yaml.MappingNode) -> list[tuple[Any, Any]]:
        """Return the entries of a mapping without those that `<<` merges: an alias may read it again."""
        return self._written.get(id(node)) or list(node.value)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        self._written.setdefault(id(node), list(node.value))
        super().flatten_mapping(node)  # changes the node
        self.count(node)


class _Reader:
    """Reads a text; `place_of` says where a node of it is."""

    def __init__(self, text: str, place_of: Callable[[yaml.Node], str]) -> None:
        self._loader = _Loader(text, place_of)
        self._place = place_of
        self.origins: dict[KeyPath, str] = {}

    def document(self) -> Any:
        root = self._loader.get_single_node()
        return {} if root is None else self._read(root, ())

    def _read(self, node: yaml.Node, key: KeyPath) -> Any:
        if len(key) > _DEEPEST:
            raise ConfigError("", _TOO_DEEP, "An anchor may contain itself", self._place(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode):
            self._loader.count(node)
            return [self._item(child, (*key, index)) for index, child in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, key: KeyPath) -> dict[str, Any]:
        # Check before `<<` merges keys that may be overridden: only a key that is written twice is an error.
        written: set[str] = set()
        for name_node, _ in self._loader.written(node):
            if not isinstance(name_node, yaml.ScalarNode):
                problem = f"is a {name_node.id} where a key is expected"
                fix = "Double braces come from a template that was not filled in"
                raise ConfigError(dotted_name(key), problem, fix, self._place(name_node))
            if name_node.value in written and name_node.tag != "tag:yaml.org,2002:merge":
                dotted = dotted_name((*key, name_node.value))
                raise ConfigError(dotted, "is set twice", "Keep one of the two", self._place(name_node))
            written.add(name_node.value)
        self._loader.flatten_mapping(node)
        values: dict[str, Any] = {}
        for name_node, child in node.value:
            name = str(self._scalar(name_node))
            self.origins[(*key, name)] = self._place(name_node)
            values[name] = self._read(child, (*key, name))
        return values

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self._loader.construct_object(node)
        except _NOT_OF_ITS_TYPE as error:
            # A date or number that looks like one and is none, or `!!bool maybe`.
            problem = f"is not valid YAML: {_reason(error, node)}"
            raise ConfigError("", problem, "Quote it if it is text", self._place(node)) from error

    def _item(self, node: yaml.Node, key: KeyPath) -> Any:
        self.origins[key] = self._place(node)
        return self._read(node, key)


def dotted_name(key: KeyPath) -> str:
    """Format a path: ("queues", 0, "pattern") becomes `queues[0].pattern`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _put(values: dict[str, Any], key: tuple[str, ...], value: Any, where: str) -> list[KeyPath]:
    """Set a value, and return the keys that it replaced or added."""
    inner = values
    for depth, part in enumerate(key[:-1], start=1):
        below = inner.get(part)
        if below is None:
            below = inner[part] = {}
        if not isinstance(below, dict):
            name = dotted_name(key[:depth])
            raise ConfigError(name, "is not a section", f"Override {name} as a whole instead", where)
        inner = below
    return list(_merged(inner, key, value))


def _merged(section: dict[str, Any], key: tuple[str, ...], value: Any) -> Iterator[KeyPath]:
    """Set the last part of a key in the section it is in: a mapping changes what it names in the one that is there."""
    below = section.get(key[-1])
    if isinstance(value, dict) and isinstance(below, dict):
        for name, inner in value.items():
            yield from _merged(below, (*key, name), inner)
    else:
        section[key[-1]] = value
        yield key


def _unset(values: dict[str, Any], key: tuple[str, ...]) -> None:
    """Remove a key, so that it has its default; it may be missing."""
    inner: Any = values
    for part in key[:-1]:
        inner = inner.get(part) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner.pop(key[-1], None)


def _env_value(text: str, where: str, is_secret: bool) -> Any:
    if text.lstrip()[:1] not in ("[", "{") or is_secret:
        return text
    try:
        return _Reader(text, lambda _: where).document()
    except RecursionError as error:
        raise ConfigError("", _TOO_DEEP, "Close its brackets", where) from error
    except yaml.YAMLError as error:
        problem = f"begins like a list or mapping but is not valid YAML ({_first_line(error)})"
        raise ConfigError("", problem, "Correct its brackets and quotes", where) from error


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(inner) for name, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


def _not_yaml(error: yaml.YAMLError, path: Path) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or _first_line(error)
    where = place(path, mark.line + 1 if mark is not None else None)
    return ConfigError("", f"is not valid YAML: {problem}", "Check the indentation and quotes of this line", where)


def _reason(error: Exception, node: yaml.Node) -> str:
    return str(error) if isinstance(error, ValueError) else f"{node.value!r} is not of type {node.tag.rpartition(':')[2]}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
