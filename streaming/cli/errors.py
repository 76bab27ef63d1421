"""Convert an error to one clear line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

EXIT_FAILED: Final = 1
"""The command failed: a port in use, a broker that does not answer, a failed job."""
EXIT_USAGE: Final = 2
"""The command line or the configuration is wrong."""
EXIT_INTERRUPTED: Final = 130


@contextmanager
def reported() -> Iterator[None]:
    """Print expected errors, which name a problem and its fix, on standard error; other errors keep their traceback."""
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
    """Return the exit code of an expected error, None for any other."""
    names = {kind.__name__ for kind in type(error).__mro__}
    # Compare names, so that Spark, the HTTP service and pydantic need not be imported for their classes.
    if names & {"ConfigError", "UnusableConfig"}:
        return EXIT_USAGE
    if names & {"JobError", "RuntimeUnavailable", "CannotListenError", "CommandError"}:
        return EXIT_FAILED
    return None


def lines_of(error: Exception) -> list[str]:
    """Return the lines to print: every error of a configuration, one line for anything else."""
    several = getattr(error, "errors", None)
    return [str(one) for one in several] if isinstance(several, list) else [str(error)]


class CommandError(Exception):
    """A command failed; the message names the problem and the fix."""


class UnusableConfig(CommandError):
    """The command refuses to run as it is configured; only a change of the configuration helps."""
