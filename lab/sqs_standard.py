"""A standard queue: roughly in order; a message that comes back goes to the end."""

from __future__ import annotations

from dataclasses import dataclass

from lab.sqs import Message, SqsQueue


@dataclass
class StandardQueue(SqsQueue):
    """At-least-once delivery with best-effort ordering."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._visible: list[Message] = []
        self._order = self.sim.random(f"order of {self.name}")

    def _add(self, message: Message) -> None:
        pass

    def _offer(self, message: Message) -> None:
        self._visible.append(message)

    def _take(self, most: int) -> list[Message]:
        taken: list[Message] = []
        while self._visible and len(taken) < most:
            reach = min(len(self._visible), self.settings.order_window)
            message = self._visible.pop(self._order.randrange(reach) if reach > 1 else 0)
            if message.id not in self.messages:
                continue  # deleted or expired while visible
            if self._exhausted(message):
                self._move(message)
            else:
                taken.append(message)
        return taken

    def _remove(self, message: Message) -> None:
        pass  # a visible one is passed over when its turn comes

    def _unblock(self, message: Message) -> None:
        pass

    def _receivable(self) -> bool:
        return bool(self._visible)
