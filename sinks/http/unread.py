"""A limit on the bytes of responses that clients have not read yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class _Response:
    client: str
    size: int
    cut: Callable[[], None]


class UnreadResponses:
    """The responses that are being sent. Used by the server's thread only.

    They are held in memory until they are read, so that clients that read slowly, or not at all, could use up all of it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[_Response] = []
        """The oldest first."""

    @contextmanager
    def holding(self, client: str, size: int, cut: Callable[[], None]) -> Iterator[None]:
        """Count `size` bytes for the address `client` inside the block; `cut` ends the connection if others need the room.

        A response always gets room: the oldest ones of the client that has the most bytes are cut, as long as there are any.
        """
        mine = _Response(client, size, cut)
        self._held.append(mine)
        self._make_room(mine)
        try:
            yield
        finally:
            if mine in self._held:
                self._held.remove(mine)

    def _make_room(self, newest: _Response) -> None:
        bytes_of = Counter[str]()
        for response in self._held:
            bytes_of[response.client] += response.size
        while bytes_of.total() > self._limit and len(self._held) > 1:
            others = [response for response in self._held if response is not newest]
            oldest = max(others, key=lambda response: bytes_of[response.client])
            self._held.remove(oldest)
            bytes_of[oldest.client] -= oldest.size
            oldest.cut()
