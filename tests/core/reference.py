"""A slow, obvious model of the same rules: plain objects, one message at a time, every answer computed from all events.

It stores nothing but the events it was given, in no order, and sorts and counts them again for each question. It is written from
the contract's text, not from the core's code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Wire = dict[str, Any]
ENDS = {"deleted", "dead_lettered", "redriven", "expired", "dropped"}
POISON_RECEIVES = 3
GROUP_STUCK_MIN_MS = 60_000
CLOCKS_DIFFER_MS = 60_000
NEVER = 2**61 - 1
"""Later than any time: the end of a window that only a settlement or another receive ends."""


@dataclass
class Timeouts:
    """What was reported of a queue's visibility timeout."""

    unreported: int
    """The timeout until one is reported."""
    reports: list[tuple[int, int]] = field(default_factory=list)

    @property
    def now(self) -> int:
        return max(self.reports, default=(0, self.unreported))[1]

    def of(self, receive_at: int) -> int:
        """Return the timeout of a receive: that of before for one before the latest change."""
        others = [(at, timeout) for at, timeout in self.reports if timeout != self.now]
        if not others:
            return self.now
        changed_at = min(at for at, _ in self.reports if at > max(others)[0])
        return max(others)[1] if receive_at < changed_at else self.now


@dataclass
class Message:
    """Everything reported about one message in one queue. Times are epoch milliseconds."""

    message_id: str
    ordered: bool
    timeouts: Timeouts
    events: list[Wire] = field(default_factory=list)
    arrivals: list[tuple[int, str]] = field(default_factory=list)
    """When it arrived in this (dead-letter) queue, and how that is known."""
    original: Message | None = None
    """The message in its source queue."""
    purges: list[int] = field(default_factory=list)
    """When its queue was purged."""
    sent_by_moves: list[int] = field(default_factory=list)
    """When it was sent by the events of its moves here, which an ordered queue does not keep."""

    def of(self, *types: str) -> list[Wire]:
        """Return its events of some types by time, without repetitions."""
        chosen = {repr(sorted(e.items())): e for e in self.events if e["type"] in types}
        return sorted(chosen.values(), key=lambda e: (e["at"], types.index(e["type"])))

    @property
    def receives(self) -> list[Wire]:
        seen: dict[Any, Wire] = {}
        for e in self.of("received"):
            seen.setdefault(e.get("receive_count") or repr(sorted(e.items())), e)
        return list(seen.values())

    def came_earlier(self, delivery: Wire) -> bool:
        """Whether the counts show that it came before a receive dated up to a minute before it; a redrive restarts the counts."""
        count, at = delivery.get("receive_count") or 0, delivery["at"]
        others = [(e.get("receive_count") or 0, e["at"]) for e in self.receives]
        overtaken = any(other > count and other_at <= at <= other_at + CLOCKS_DIFFER_MS for other, other_at in others)
        return count > 0 and overtaken and not self.of("redriven")

    @property
    def receive_count(self) -> int:
        reported = [int(e.get("receive_count", 0)) for e in self.events if e["type"] != "sent"]
        return max([*reported, len(self.receives)])

    @property
    def unseen_receives(self) -> int:
        """How many receives are known only from the number of a later one; those of a dead letter go on from its source's."""
        highest = max((int(e.get("receive_count", 0)) for e in self.receives), default=0)
        return 0 if self.arrivals else max(highest - len(self.receives), 0)

    @property
    def ended(self) -> bool:
        return self.left or self.purged

    @property
    def purged(self) -> bool:
        """Whether a purge removed it; of a message that left in another way, a purge removed nothing."""
        there_since = max(self.sent_at, self.last_received, self.arrived_at or 0)
        return not self.left and any(at >= there_since for at in self.purges)

    @property
    def left(self) -> bool:
        """Whether it was settled, moved or lost, or was never here."""
        ends = [e["at"] + tolerance_ms(e) for e in self.events if e["type"] in ENDS]
        last_received = self.last_received
        return self.disproved_at is not None or any(at >= last_received for at in ends)

    @property
    def disproved_at(self) -> int | None:
        """When a delivery in its source queue showed that it is not here, which in an ordered queue cannot be seen."""
        if self.ordered or self.original is None:
            return None
        there = self.original
        moves = [e for e in there.of("dead_lettered") if e["at"] + tolerance_ms(e) >= there.last_received]
        known_here = max([self.last_received] + [at for at, _ in self.arrivals])
        # Clocks differ by up to a minute; and receives go on counting after a move.
        is_later = there.last_received > known_here + 60_000 and not (self.receives and self.receive_count > there.receive_count)
        return there.last_received if is_later and not moves else None

    @property
    def last_received(self) -> int:
        return max((int(e["at"]) for e in self.receives if not self.came_earlier(e)), default=0)

    @property
    def touched(self) -> bool:
        """Whether one of its deliveries, or the end of one, was reported."""
        return any(e["type"] in ENDS | {"received"} and "v" in e for e in self.events)

    @property
    def entered(self) -> bool:
        """Whether its entry into the queue was reported, not only shown by a receive."""
        return bool(self.of("sent") or self.of("moved_back") or any(how == "event" for _, how in self.arrivals))

    def failed_deliveries(self, now: int) -> int:
        """Count deliveries that ended without a settlement; a later deletion or redrive settles the last one.

        How one would have ended that was under way when its message proved to be elsewhere is unknown.
        """
        settled = any(e["type"] in {"deleted", "redriven"} and e["at"] >= self.last_received for e in self.events)
        open_ = not self.ended and self.state(now) == "in_flight"
        cut_short = self.disproved_at is not None and bool(self.moves()) and self.state(self.disproved_at) == "in_flight"
        return max(len(self.receives) - (settled or open_ or cut_short), 0)

    @property
    def sent_at(self) -> int:
        known = [e["sent_at"] for e in self.events if "sent_at" in e] + [e["at"] for e in self.of("sent")] + self.sent_by_moves
        if self.ordered and self.arrivals:
            known.append(min(at for at, _ in self.arrivals))
        elif self.original is not None and self.original.sent_known:
            known.append(self.original.sent_at)
        return int(min(known or [e["at"] for e in self.events] + [at for at, _ in self.arrivals]))

    @property
    def sent_known(self) -> bool:
        return bool(self.sent_by_moves) or any("sent_at" in e or e["type"] == "sent" for e in self.events)

    @property
    def arrived_at(self) -> int | None:
        reported = [at for at, how in self.arrivals if how == "event"]
        return min(reported or [at for at, _ in self.arrivals], default=None)

    @property
    def sequence(self) -> int | None:
        return next((int(e["sequence"]) for e in self.events if "sequence" in e), None)

    @property
    def group(self) -> str | None:
        return next((e["group"] for e in self.events if "group" in e), None)

    @property
    def delay(self) -> int:
        return max((int(e.get("visible_at", 0)) for e in self.of("sent")), default=0)

    def moves(self) -> list[Wire]:
        """Return receives, extensions and releases in order, without those that came before an earlier dated receive."""
        return [move for move in self.all_moves() if not self.came_earlier(move)]

    def all_moves(self) -> list[Wire]:
        """Return receives, extensions and releases by their times."""
        return self.of("received", "extended", "released")

    def window_end(self, move: Wire) -> int:
        if move["type"] == "released":
            return int(max(move.get("visible_at", 0), move["at"]))
        return int(move.get("invisible_until", move["at"] + self.timeouts.of(move["at"])))

    def state(self, now: int) -> str:
        moves = self.moves()
        if moves and now < self.window_end(moves[-1]):
            return "delayed" if moves[-1]["type"] == "released" else "in_flight"
        return "delayed" if not moves and now < self.delay else "visible"

    @property
    def held_since(self) -> int:
        """Since when it is held, if it is in flight: its latest receive; the first extension of a row where none is reported."""
        since = until = 0
        for move in self.moves() if not self.last_received else []:
            goes_on = move["type"] == "extended" and move["at"] <= until
            since = since if goes_on else move["at"]
            until = self.window_end(move) if move["type"] == "extended" else 0
        return self.last_received or since

    def returning(self, now: int) -> bool:
        """Whether it was released and is not visible yet."""
        moves = self.moves()
        return bool(moves) and moves[-1]["type"] == "released" and now < self.window_end(moves[-1])

    def cloudwatch_from(self, now: int) -> int:
        """On a standard queue the age restarts when the 3rd, 6th, 9th… receive ends without a deletion."""
        start = self.sent_at if self.arrived_at is None else self.arrived_at
        if self.ordered or self.arrived_at is not None:
            return start
        moves = self.all_moves()
        receives = [(i, m) for i, m in enumerate(moves) if m["type"] == "received"]
        before = 0
        for nth, (_, move) in enumerate(receives):
            count = move.get("receive_count") or nth + 1
            if (count - 1) // 3 > before // 3 and move["at"] <= now:
                start = max(start, move["at"])
            before = count
            following = receives[nth + 1][0] if nth + 1 < len(receives) else len(moves)
            last = moves[following - 1]
            over = last["at"] if last["type"] == "released" else self.window_end(last)
            if nth + 1 < len(receives):
                over = min(over, receives[nth + 1][1]["at"])
            if count % 3 == 0 and over <= now:
                start = max(start, over)
        return start


def tolerance_ms(end: Wire) -> int:
    """Return how long after an end its message may be delivered by another clock: a receive in the dead-letter queue dates it."""
    return CLOCKS_DIFFER_MS if "v" not in end and "to_queue" in end else 0


def passes(youngest: tuple[int, int], head: Message, since: int) -> bool:
    """Whether the youngest received message, given as (sent at, received at), overtook a waiting head."""
    return youngest[0] > head.sent_at and youngest[1] > since


def place_in_queue(m: Message, by_position: bool) -> tuple[int, ...]:
    """Return what orders the messages of a group; of those sent at once, the broker delivers the one in front again and again."""
    position = (0 if by_position else m.sent_at, m.sequence is not None, m.sequence or 0, m.sent_at)
    return (*position, not m.moves(), -m.receive_count, m.last_received)


class Model:
    """All queues. `tell` takes all events, in any order; everything else only reads."""

    def __init__(
        self, visibility_ms: Mapping[str, int], max_receives: Mapping[str, int], dead_letter_queues: Mapping[str, str]
    ) -> None:
        self.max_receives = max_receives
        self.dead_letter_queues = dead_letter_queues
        """By their source queues, unordered ones: an ordered queue may be in another shard."""
        self.timeouts = defaultdict(lambda: Timeouts(30_000), {queue: Timeouts(ms) for queue, ms in visibility_ms.items()})
        self.messages: dict[str, dict[str, Message]] = defaultdict(dict)
        self.purges: dict[str, list[int]] = defaultdict(list)
        self.apparent: set[str] = set()
        """Queues where a received message names the queue it came from…"""
        self.redriven_to: set[str] = set()
        """…and those that something was redriven to."""
        self.ordered: set[str] = set()
        self.blocks_groups: set[str] = set()
        """Queues of SQS, which delivers nothing of a group behind a message that waits or is in flight."""

    def message(self, queue: str, message_id: str) -> Message:
        return self.messages[queue].setdefault(
            message_id,
            Message(message_id, queue in self.ordered, self.timeouts[queue], purges=self.purges[queue]),
        )

    def tell(self, events: list[Wire]) -> None:
        for e in events:
            queues = {e["queue"], *(e[name] for name in ("to_queue", "from_queue") if name in e)}
            self.ordered |= {queue for queue in queues if queue.endswith(".fifo")} | ({e["queue"]} if e.get("ordered") else set())
            self.blocks_groups |= queues if e["system"] == "aws_sqs" else set()
            if e["type"] == "redriven":
                self.redriven_to.add(e["to_queue"])
            elif e["type"] == "received" and "from_queue" in e:
                # A move to a dead-letter queue keeps the receive count, and a redrive does not.
                (self.redriven_to if e.get("receive_count") == 1 else self.apparent).add(e["queue"])
        for e in sorted(events, key=lambda e: str(e["at"])):
            if e["type"] == "purged":
                self.purges[e["queue"]].append(e["at"])
            if e["type"] == "queue_state" and "visibility_timeout_s" in e["attributes"]:
                self.timeouts[e["queue"]].reports.append((e["at"], e["attributes"]["visibility_timeout_s"] * 1000))
            if "message_id" not in e:
                continue
            here = self.message(e["queue"], e["message_id"])
            here.events.append(e)
            about = {"at": e["at"], "message_id": e["message_id"]} | ({"group": e["group"]} if "group" in e else {})
            if e["type"] == "dead_lettered":
                there = self.message(e["to_queue"], e["message_id"])
                there.arrivals.append((e["at"], "event"))
                # An ordered queue may be in another shard.
                there.original = None if here.ordered else here
                there.sent_by_moves += [e["sent_at"]] if "sent_at" in e and not there.ordered else []
            elif e["type"] == "received" and "from_queue" in e and self.is_dead_letter_queue(e["queue"]):
                # A FIFO queue gives a dead letter a new send time when it arrives.
                arrived_at = min(e["at"], e.get("sent_at", e["at"])) if here.ordered else e["at"]
                here.arrivals.append((arrived_at, "first_receive"))
                here.original = self.message(e["from_queue"], e["message_id"])
                here.original.events.append({"type": "dead_lettered", "to_queue": e["queue"], **about})
            elif e["type"] == "redriven" and "new_message_id" in e:
                again = self.message(e["to_queue"], e["new_message_id"])
                again.events.append({"type": "moved_back", "sent_at": e["at"], **about})
        for source, dead in self.dead_letter_queues.items():
            for message_id, m in self.messages[dead].items():
                left = [e["at"] for e in m.events if e["type"] == "redriven"]
                original = self.messages[source].get(message_id)
                if left and not m.arrivals and original is not None:
                    # Nobody reported that it was moved: that it left the dead-letter queue shows it.
                    original.events.append({"type": "dead_lettered", "at": min(left), "message_id": message_id})
                elif m.receives and not m.original and not left:
                    # A receive there shows it too, although it names no source.
                    at = m.receives[0]["at"]
                    m.arrivals.append((at, "first_receive"))
                    if original is not None:
                        m.original = original
                        original.events.append({"type": "dead_lettered", "at": at, "message_id": message_id, "to_queue": dead})

    def live(self, queue: str) -> list[Message]:
        gone = self.overtaken(queue)
        return [m for m in self.messages[queue].values() if not m.ended and m.message_id not in gone]

    def overtaken(self, queue: str) -> dict[str, int]:
        """Return the messages never seen to be received although a later one of their group was, and when that was."""
        if queue not in self.ordered & self.blocks_groups or self.is_dead_letter_queue(queue):
            return {}
        messages = [m for m in self.messages[queue].values() if m.group is not None and m.sequence is not None]
        out = {}
        for m in messages:
            later = [
                (other.sequence or 0, other.last_received) for other in messages if other.group == m.group and other.receives
            ]
            reached, at = max(later, default=(0, 0))
            waited = not m.delay or m.delay + 60_000 <= at
            # One that was sent after that is not before it, whatever its position.
            waited &= m.sent_at <= at + CLOCKS_DIFFER_MS
            if not m.ended and not m.moves() and (m.sequence or 0) < reached and waited:
                out[m.message_id] = at
        return out

    def purged(self, queue: str, now: int) -> int:
        """Count messages that a purge removed unprocessed; the consumers of those in flight may still finish them."""
        return sum(m.purged and m.state(now) != "in_flight" for m in self.messages[queue].values())

    def depth(self, queue: str, now: int) -> dict[str, int]:
        states = [m.state(now) for m in self.live(queue)]
        return {state: states.count(state) for state in ("visible", "in_flight", "delayed")}

    def poison(self, queue: str) -> set[str]:
        limit = min(POISON_RECEIVES, max(2, self.max_receives.get(queue, 99)))
        # A dead letter's count continues from its source queue: only its receives in this queue count.
        counts = {
            m.message_id: len(m.receives) if self.is_dead_letter_queue(queue) else m.receive_count for m in self.live(queue)
        }
        return {message_id for message_id, count in counts.items() if count >= limit}

    def is_dead_letter_queue(self, queue: str) -> bool:
        return queue.startswith(("dead", "DLQ.")) or (queue in self.apparent and queue not in self.redriven_to)

    def oldest(self, queue: str, now: int) -> dict[str, int | None]:
        live, poison = self.live(queue), self.poison(queue)
        scopes = {
            "all": [m.sent_at for m in live],
            "visible": [m.sent_at for m in live if m.state(now) == "visible"],
            "cloudwatch": [m.cloudwatch_from(now) for m in live],
            "healthy": [m.sent_at for m in live if m.message_id not in poison],
        }
        return {scope: min(times, default=None) for scope, times in scopes.items()}

    def totals(self, queue: str, now: int) -> dict[str, int]:
        messages = self.messages[queue].values()
        totals = {
            "sent": sum(bool(m.of("sent")) for m in messages),
            "received": sum(len(m.receives) for m in messages),
            "touched": sum(m.touched for m in messages),
            "touched_unsent": sum(m.touched and not m.entered for m in messages),
            "failed": sum(m.failed_deliveries(now) for m in messages),
            "unseen_receives": sum(m.unseen_receives for m in messages),
        }
        return totals | {end: sum(any(e["type"] == end for e in m.events) for m in messages) for end in sorted(ENDS)}

    def held_since(self, queue: str, now: int) -> int | None:
        """Return since when the longest held message is held without a break."""
        return min((m.held_since for m in self.live(queue) if m.state(now) == "in_flight"), default=None)

    def arrivals(self, queue: str) -> dict[str, int | None]:
        return {m.message_id: m.arrived_at for m in self.messages[queue].values() if m.arrivals}

    def stuck(self, queue: str, now: int) -> dict[str, tuple[str, int, str, bool]]:
        """Return stuck group -> (head, messages behind, reason, whether a signal about it may begin now)."""
        if self.is_dead_letter_queue(queue):
            return {}
        groups: dict[str, list[Message]] = defaultdict(list)
        settled: dict[str, int] = defaultdict(int)
        gone = self.overtaken(queue)
        for m in self.messages[queue].values():
            for e in m.events:
                if m.group is not None and e["type"] in ENDS:
                    settled[m.group] = max(settled[m.group], e["at"])
            if m.group is not None and m.message_id in gone:
                settled[m.group] = max(settled[m.group], gone[m.message_id] - 1)
        for m in self.live(queue):
            if m.group is not None:
                groups[m.group].append(m)
        timeout = self.timeouts[queue].now
        limit = max(2 * timeout if timeout < NEVER else 0, GROUP_STUCK_MIN_MS)
        received = [m for m in self.messages[queue].values() if m.receives]
        silent_ms = min((now - m.last_received for m in received), default=now)
        known = [(m.sent_at, m.last_received) for m in received if m.sent_known]
        youngest = max(known, default=(0, 0))
        out = {}
        for name, messages in groups.items():
            # Where any message of the queue lacks a position, only send times can be used.
            everyone = [m for ms in groups.values() for m in ms]
            by_position = all(m.sequence is not None for m in everyone)
            head = min(messages, key=lambda m: place_in_queue(m, by_position))
            since = max(head.sent_at, head.delay, settled[name])
            returning = head.returning(now)
            if len(messages) < 2 or now - since < limit or (head.state(now) == "delayed" and not returning):
                continue
            in_flight, is_poison = head.state(now) == "in_flight", head.message_id in self.poison(queue)
            # One in flight with the head is worked on, but comes back with a poison suspect again and again. Where the broker
            # does not hold back the group, it waits in a prefetch window.
            waits_in_flight = is_poison or queue not in self.blocks_groups
            states = ("visible", "in_flight") if waits_in_flight else ("visible",)
            waiting = sum(m is not head and (m.state(now) in states or m.returning(now)) for m in messages)
            came_back = head.receive_count > 1
            patience = min(limit // 2, 60_000 if came_back else limit)
            alive = silent_ms < (max(limit, 300_000) if came_back else limit)
            if in_flight:
                may_begin = is_poison or now - head.held_since >= patience
            else:
                may_begin = returning or (alive and (head.receive_count > 0 or passes(youngest, head, since)))
            may_begin &= waiting > 0
            failed = came_back or (head.receive_count > 0 and not in_flight)
            if not may_begin and not failed:
                continue
            last = head.moves()[-1] if head.moves() else {"type": "", "at": 0, "invisible_until": 0}
            given_back = last["type"] == "released"
            if head.receive_count and not in_flight and not given_back and settled[name] > head.window_end(last):
                continue
            if head.message_id in self.poison(queue):
                reason = "poison_head"
            elif in_flight or (returning and head.receive_count <= 1):
                reason = "held_head"
            else:
                reason = "poison_head" if head.receive_count > 1 else "not_received"
            out[name] = (head.message_id, waiting, reason, may_begin)
        return out
