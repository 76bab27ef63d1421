"""The queue of frames between the reader thread and the worker thread."""

import threading

from sources.activemq.inbox import Inbox, Incoming


def frame(number: int) -> Incoming:
    """Return a frame that differs from the others by its time."""
    return Incoming("message", number, "s", {}, "")


def test_frames_are_taken_in_order() -> None:
    inbox = Inbox(10)
    for number in range(5):
        inbox.put(frame(number))
    assert [incoming.at_ms for incoming in inbox.take(0)] == [0, 1, 2, 3, 4]
    assert inbox.take(0) == []


def test_a_full_inbox_blocks_the_reader_and_loses_nothing() -> None:
    inbox = Inbox(3)

    def read() -> None:
        for number in range(100):
            inbox.put(frame(number))

    reader = threading.Thread(target=read)
    reader.start()
    taken: list[int] = []
    while len(taken) < 100:
        batch = inbox.take(5)
        assert 0 < len(batch) <= 3, "each hand-over is of one frame, so the limit is exact"
        taken += [incoming.at_ms for incoming in batch]
    reader.join(5)
    assert taken == list(range(100))


def test_a_closed_inbox_blocks_nobody() -> None:
    inbox = Inbox(1)
    inbox.put(frame(1))
    reader = threading.Thread(target=lambda: inbox.put(frame(2)))
    reader.start()
    inbox.close()
    reader.join(5)
    assert not reader.is_alive()
    assert inbox.take(60) == []
