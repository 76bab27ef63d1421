"""What functions do with batches, and what should happen to each message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Ending = Literal["returned", "error", "timeout", "exited"]
ALL: Final = "all"
NONE: Final = "none"


@dataclass(frozen=True)
class Behaviour:
    """One way to handle a batch. `name` tells the function in `apps/` what to do.

    `back` are the positions of the messages that come back. `blind` means that the process dies without warning: the end of the
    batch cannot be reported, and nothing wrong may be reported.
    """

    name: str
    back: tuple[int, ...] | Literal["all", "none"]
    why: str
    reason: str = ""
    ending: Ending = "returned"
    messages: int = 3
    groups: tuple[str, ...] = ()
    """For a FIFO queue, each message's group."""
    bad: tuple[int, ...] = ()
    """Positions of messages whose body ends in `|bad`."""
    reports: bool = True
    blind: bool = False

    @property
    def fifo(self) -> bool:
        return bool(self.groups)

    def positions_back(self) -> set[int]:
        """Return the positions of the messages that come back."""
        if isinstance(self.back, str):
            return set(range(self.messages)) if self.back == ALL else set()
        return set(self.back)


_INVALID = "invalid batchItemFailures"
_NAMED = "named in batchItemFailures"

TABLE: tuple[Behaviour, ...] = (
    Behaviour("returns nothing", NONE, "the usual function", "returned"),
    Behaviour("returns nothing", NONE, "a batch of one", "returned", messages=1),
    Behaviour("returns nothing", NONE, "a full batch", "returned", messages=10),
    Behaviour("returns an object", NONE, "a result the mapping has no use for", "returned"),
    Behaviour("returns a string", NONE, "a result that is no object", "returned"),
    Behaviour("returns an empty object", NONE, "an empty response is a success", "returned"),
    Behaviour("names none", NONE, "an empty list is a success", "returned"),
    Behaviour("names null", NONE, "a null list is a success", "returned"),
    Behaviour("names the first", (0,), "one comes back", _NAMED),
    Behaviour("names the last", (2,), "one comes back, wherever it was", _NAMED),
    Behaviour("names the last", (9,), "one of a full batch", _NAMED, messages=10),
    Behaviour("names all", ALL, "all come back, yet the invocation succeeded", _NAMED),
    Behaviour("names all", ALL, "a batch of one", _NAMED, messages=1),
    Behaviour("names one twice", (1,), "the same id twice is one message", _NAMED),
    Behaviour("names bad ones", (0, 2), "two of four", _NAMED, messages=4, bad=(0, 2)),
    Behaviour("names a stranger", ALL, "an unknown id fails the batch", _INVALID),
    Behaviour("names a stranger beside one", ALL, "so does one beside a good one", _INVALID),
    Behaviour("names an empty id", ALL, "an empty id fails the batch", _INVALID),
    Behaviour("names a null id", ALL, "a null id fails the batch", _INVALID),
    Behaviour("names a number", ALL, "so does what is no id at all", _INVALID),
    Behaviour("wrong key", ALL, "messageId instead of itemIdentifier", _INVALID),
    Behaviour("plain strings", ALL, "ids that are not wrapped in objects", _INVALID),
    Behaviour("not a list", ALL, "a list that is none", _INVALID),
    Behaviour("names the first", NONE, "without ReportBatchItemFailures nobody reads the list", "returned", reports=False),
    Behaviour("wrong key", NONE, "nor finds it invalid", "returned", reports=False),
    Behaviour("raises", ALL, "an error of the application's own", "raised ChargeFailed", "error"),
    Behaviour("raises", ALL, "the same where failures are not reported", "raised ChargeFailed", "error", reports=False),
    Behaviour("raises without a message", ALL, "an error of the language", "raised *", "error"),
    Behaviour("cannot be serialized", ALL, "the handler returned, and the invocation failed", "*", "error"),
    Behaviour("too large", ALL, "more than 6 MB cannot be answered", "response too large", "error"),
    Behaviour("times out", ALL, "the platform kills the process", "timed out", "timeout"),
    Behaviour("just in time", NONE, "it looked as if it would time out", "returned"),
    Behaviour("fails just in time", ALL, "and failed instead", "timed out", "error"),
    Behaviour("takes long", NONE, "longer than receives wait to be reported", "returned"),
    Behaviour("empties the event", NONE, "the function may do as it likes with its event", "returned"),
    Behaviour("is killed", ALL, "out of memory: no code of ours runs", ending="exited", blind=True),
    Behaviour("returns nothing", NONE, "FIFO: a whole batch", "returned", groups=("a", "a", "a")),
    Behaviour("returns nothing", NONE, "FIFO: several groups", "returned", groups=("a", "b", "c")),
    Behaviour("stops at the first", (1, 2), "FIFO: stopped at the first failure", _NAMED, groups=("a", "a", "a"), bad=(1,)),
    Behaviour("stops at the first", ALL, "FIFO: the head fails", _NAMED, groups=("a", "a", "a"), bad=(0,)),
    Behaviour(
        "stops at the first", (2, 3), "FIFO: stopped across groups", _NAMED, messages=4, groups=("a", "a", "b", "b"), bad=(2,)
    ),
    Behaviour("names bad ones", (0,), "FIFO: it went on behind a failure", _NAMED, groups=("a", "a", "a"), bad=(0,)),
    Behaviour("raises", ALL, "FIFO: the group is blocked", "raised ChargeFailed", "error", groups=("a", "a", "a")),
    Behaviour("names a stranger", ALL, "FIFO: an invalid response", _INVALID, groups=("a", "a", "a")),
    Behaviour("times out", ALL, "FIFO: time runs out", "timed out", "timeout", groups=("a", "a", "b")),
)
