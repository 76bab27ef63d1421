"""Describe the failure of a streaming query in one line."""

from __future__ import annotations

import re
from collections import deque
from typing import Final

# What they search may be megabytes of anything, so each of them reads a character a few times at most.
_CAUSE: Final = re.compile(r"^[^\S\n]*Caused by: (?:[\w.$]+\.)?([\w$]+(?::.*)?)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt|Unavailable|Blob|Damaged)\b.*)$", re.MULTILINE)
_LOST_TASK: Final = re.compile(r"Lost task (?:(?!Lost task ).)*?\): (?:[\w.]+\.)?([\w$]+: .*)$", re.MULTILINE)
_JAVA_BEGINS: Final = re.compile(r"^(?:[\w.]+\.)?Py4JJavaError: .*$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last)"
_WORKER_EXITED: Final = "Python worker exited unexpectedly"
_WORKER_GONE: Final = re.compile(r"Connection reset|Broken pipe|Stream closed|EOFException")
_STATE_LOAD: Final = "[CANNOT_LOAD_STATE_STORE"
WHY_GONE: Final = "it crashed, was killed (for lack of memory: see the system's log), or hung for longer than Spark waits"
_NOT_EXECUTABLE: Final = re.compile(
    r"UnsatisfiedLinkError: (\S+): (?:(?!UnsatisfiedLinkError: ).)*?failed to map segment from shared object"
)
_FRAMES: Final = re.compile(r"(?:\n\s+at [^\n]+){1,5}")
_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded")
_LONGEST: Final = 500


def reason_of(error: BaseException | None) -> str:
    """Return the innermost cause of a query's failure.

    Spark wraps it in a message of many lines with the whole query plan; the useful part is the last Python exception or
    the last `Caused by`.
    """
    if error is None:
        return "it stopped without saying why"
    text = str(error).split("=== Streaming Query ===")[0]
    # Java's message follows Py4J's own line, which has no information.
    for begins in deque(_JAVA_BEGINS.finditer(text), maxlen=1):
        text = text[begins.end() :]
    if _WORKER_EXITED in text:
        return f"a Python worker exited unexpectedly: {WHY_GONE}"
    if refused := _NOT_EXECUTABLE.search(text):
        return (
            f"{refused[1]} cannot be loaded, because its file system is mounted noexec: mount it with exec (Docker: "
            "`--tmpfs /tmp:exec`), or set spark.conf's spark.driver.extraJavaOptions and spark.executor.extraJavaOptions to "
            "-Djava.io.tmpdir=… with a folder whose files may be executed"
        )
    for pattern in (_PYTHON if _TRACEBACK in text else _CAUSE, _CAUSE, _LOST_TASK):
        found = pattern.findall(text)
        if found:
            reason = _short(_with_frames(found[-1], text))
            if _STATE_LOAD in text:
                return f"Spark cannot load its own state ({reason}): `queuewatch state verify` names what is damaged"
            if _WORKER_GONE.search(reason) and _TRACEBACK not in text:
                return f"a Python worker is gone ({reason}): {WHY_GONE}"
            return reason
    return _short(text)


def is_full_disk(error: BaseException | None) -> bool:
    """Whether the query failed because a disk is full: that is temporary, and giving up would not help."""
    seen: set[int] = set()
    # An error raised again while it is handled can be among its own causes.
    while error is not None and id(error) not in seen:
        if _FULL.search(str(error)):
            return True
        seen.add(id(error))
        error = error.__cause__
    return False


def _with_frames(cause: str, text: str) -> str:
    """Add the first frames of the stack trace to a cause that only announces them, as for a query that does not stop."""
    frames = _FRAMES.match(text.rpartition(cause)[2]) if cause.endswith(":") else None
    return cause + frames.group() if frames is not None else cause


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
