"""What is said of a configuration that cannot be used."""

from __future__ import annotations

from pathlib import Path


class ConfigError(ValueError):
    """One thing wrong with the configuration.

    `key` is the dotted name (`source.kafka.topics`), `where` the file and line or the environment variable it
    came from, `fix` what to do about it.
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
    """Everything wrong with one configuration: `errors`, in the order of the file; reads like the first of them."""

    def __init__(self, errors: list[ConfigError]) -> None:
        self.errors = errors
        first = errors[0]
        super().__init__(first.key, first.problem, first.fix, first.where)


def place(file: Path, line: int | None) -> str:
    """`file:line`, or the file alone when the line is not known."""
    return f"{file}:{line}" if line is not None else str(file)
