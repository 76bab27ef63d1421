"""From an error to one clear line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EXIT_FAILED: Final = 1
"""It could not be done: a port in use, a broker that does not answer, a job that failed."""
EXIT_USAGE: Final = 2
"""It was asked for wrongly: the command line or the configuration."""
EXIT_INTERRUPTED: Final = 130


@contextmanager
def reported() -> Iterator[None]:
    """Turn errors that name a thing and its fix into a line on standard error; any other keeps its traceback."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        for line in lines_of(error):
            sys.stderr.write(f"queuewatch: {line}\n")
        sys.exit(code)


def exit_code(error: Exception) -> int | None:
    """The exit code for errors that explain themselves, None for those that do not."""
    names = {kind.__name__ for kind in type(error).__mro__}
    # By name: a class is known without importing Spark, the HTTP service or pydantic to look for it.
    if "ConfigError" in names:
        return EXIT_USAGE
    if names & {"JobError", "RuntimeUnavailable", "CannotListenError", "CommandError"}:
        return EXIT_FAILED
    return None


def lines_of(error: Exception) -> list[str]:
    """What to print: every mistake of a configuration, one line for anything else."""
    several = getattr(error, "errors", None)
    return [str(one) for one in several] if isinstance(several, list) else [str(error)]


class CommandError(Exception):
    """A command cannot do what was asked; the message names the thing and the fix."""
