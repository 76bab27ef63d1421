"""Errors about an invalid configuration."""

from __future__ import annotations

from pathlib import Path


class ConfigError(ValueError):
    """One error in the configuration.

    `key` is the dotted name (`source.kafka.topics`), `where` is the file and line or the environment variable it came from, and
    `fix` says what to do.
    """

    def __init__(self, key: str, problem: str, fix: str, where: str | None = None) -> None:
        self.key = key
        self.problem = problem
        self.fix = fix
        self.where = where
        place = f"{where}: " if where else ""
        subject = f"{key}: " if key else ""
        super().__init__(f"{place}{subject}{problem}. {fix}")


class ConfigErrors(ConfigError):
    """All errors of a configuration as `errors`, in the order of the file; its own message is that of the first."""

    def __init__(self, errors: list[ConfigError]) -> None:
        self.errors = errors
        first = errors[0]
        super().__init__(first.key, first.problem, first.fix, first.where)


def place(file: Path, line: int | None) -> str:
    """Return `file:line`, or only the file if the line is unknown."""
    return f"{file}:{line}" if line is not None else str(file)
