"""Child processes of the crash tests, forked from a process that has everything imported and has run nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

FAILED: Final = 1
HANGS_AFTER_S: Final = 120


def result_of(folder: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of `work` in a child process. Raises `RuntimeError` with the child's traceback."""
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    code = exit_code(start(folder, lambda: answer.write_text(json.dumps(work()))))
    if code:
        raise RuntimeError(f"it does not go on: {ended(folder, code)}")
    body: dict[str, Any] = json.loads(answer.read_text())
    return body


def start(folder: Path, work: Callable[[], object], hangs_after_s: int = HANGS_AFTER_S) -> int:
    """Run `work` in a child process and return its id; its traceback will be in the file `words`."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = FAILED
    signal.alarm(hangs_after_s)
    # Power cuts are simulated, so there is no need to wait for the disk.
    os.fsync = _no_fsync
    try:
        work()
        code = 0
    except BaseException:
        descriptor = os.open(folder / "words", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(descriptor, traceback.format_exc()[-3_000:].encode())
    finally:
        os._exit(code)


def exit_code(pid: int) -> int:
    """Wait for a child; return its exit code, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ended(folder: Path, code: int) -> str:
    """Describe how a child ended."""
    return (folder / "words").read_text() if code == FAILED else f"the process ended with {code}"


def _no_fsync(fd: object) -> None:
    del fd
