"""A file of lines to which each batch is appended exactly once, however often it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from sinks.records import Record, Undelivered
from streaming.folder import sync_folder

_TAIL = 65_536
_REMEMBERED = 128
"""How many batches back lines can be truncated. A damaged checkpoint goes back 25, or five more than Spark is set to keep."""


class AppendOnceFile:
    """Lines in one file.

    The file `<file>.batch` next to it holds the last batches and where the lines of each begin. It is written before the lines,
    so anything that a crash or a full disk leaves after that point is truncated when the batch runs again. So are the lines of
    later batches: when a checkpoint was rolled back, they run again too. `stream` identifies the checkpoint: a new one counts
    batches from zero and must not truncate the lines of the old one, unless it `continues` that one.

    A file that would grow beyond `max_bytes` is first moved to `<file>.1` (and that to `.2`, up to `keep_files`). Moving it away
    from outside (logrotate) is fine too. With `trims`, a batch that is itself larger than `max_bytes` is cut at a line.
    """

    def __init__(
        self,
        path: Path,
        stream: str = "",
        *,
        continues: Mapping[str, int] = MappingProxyType({}),
        max_bytes: int | None = None,
        keep_files: int = 5,
        trims: bool = False,
    ) -> None:
        """`continues` holds, by the stream of an earlier checkpoint, how many of its batches came before batch 0 of this one."""
        self._path = path
        self._mark = path.with_name(path.name + ".batch")
        self._batches_before = {**continues, stream: 0}
        self._stream = stream
        self._max_bytes = max_bytes
        self._keep_files = keep_files
        self._trims = trims

    def append(self, records: Sequence[Record], batch_id: int) -> None:
        """Append the lines of one batch and fsync. Raises `Undelivered` if writing fails."""
        lines = self._lines(records)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._begin(batch_id, len(lines))
            if lines:
                with self._path.open("ab") as file:
                    was_empty = file.tell() == 0
                    file.write(lines)
                    file.flush()
                    os.fsync(file.fileno())
                if was_empty:
                    # The name of a new file must survive a power cut too.
                    sync_folder(self._path.parent)
        except OSError as error:
            raise Undelivered(
                f"{self._path} cannot be written: {error.strerror}; free space, fix its permissions, or configure another path"
            ) from error

    def close(self) -> None:
        """Do nothing, because nothing stays open between batches."""

    def _lines(self, records: Sequence[Record]) -> bytes:
        lines = bytearray()
        for record in records:
            line = record.line.encode() + b"\n"
            if self._trims and self._max_bytes is not None and len(lines) + len(line) > self._max_bytes:
                break
            lines += line
        return bytes(lines)

    def _begin(self, batch_id: int, new_bytes: int) -> None:
        begun = self._begun()
        latest = max(begun, default=batch_id - 1)
        if latest == batch_id:
            self._truncate(begun[batch_id])
            return
        if batch_id < latest <= batch_id + _REMEMBERED:
            self._truncate(min(position for known, position in begun.items() if known >= batch_id))
            begun = {known: position for known, position in begun.items() if known < batch_id}
        elif not new_bytes:
            return
        self._cut_torn_line()
        size = self._size()
        if self._max_bytes is not None and size and size + new_bytes > self._max_bytes:
            self._rotate()
        self._write_mark(batch_id, self._size(), begun)

    def _begun(self) -> dict[int, int]:
        """Return where the lines of the last batches begin in this file, by batch id.

        Batches of an earlier checkpoint have negative ids. Those it began after what this one continues run again here.
        """
        try:
            mark = json.loads(self._mark.read_bytes())
            before = self._batches_before.get(mark["stream"])
            if before is None:
                return {}
            begun = [*mark.get("earlier", []), (mark["batch_id"], mark["position"])]
            return {int(batch_id) - before: int(position) for batch_id, position in begun}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}

    def _write_mark(self, batch_id: int, position: int, begun: Mapping[int, int]) -> None:
        # A file that was rotated meanwhile, by us or from outside, is shorter than before.
        earlier = [[known, at] for known, at in begun.items() if batch_id - _REMEMBERED < known < batch_id and at <= position]
        mark = {"stream": self._stream, "batch_id": batch_id, "position": position, "earlier": earlier}
        part = self._mark.with_name(self._mark.name + ".part")
        with part.open("w") as new:
            json.dump(mark, new)
            new.flush()
            os.fsync(new.fileno())
        os.replace(part, self._mark)
        sync_folder(self._path.parent)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _truncate(self, position: int) -> None:
        if position < self._size():
            with self._path.open("rb+") as file:
                file.truncate(position)
                os.fsync(file.fileno())

    def _rotate(self) -> None:
        path = self._path.resolve()  # a link stays, and what it leads to is moved
        kept = [path, *(path.with_name(f"{path.name}.{n}") for n in range(1, self._keep_files + 1))]
        for newer, older in reversed(list(pairwise(kept))):
            if newer.exists():
                os.replace(newer, older)

    def _cut_torn_line(self) -> None:
        """Truncate an incomplete last line, left by a crash whose batch never ran again (its checkpoint was deleted)."""
        size = self._size()
        if size == 0:
            return
        with self._path.open("rb") as file:
            tail = b""
            start = size
            while start > 0 and b"\n" not in tail:
                start = max(0, start - _TAIL)
                file.seek(start)
                tail = file.read(size - start)
        whole = start + tail.rfind(b"\n") + 1
        if whole != size:
            self._truncate(whole)
