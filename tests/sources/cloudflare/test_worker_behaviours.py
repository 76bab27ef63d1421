"""A wrapped consumer behaves like a bare one and reports the runtime's verdict and what followed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.services.node import Node
from tests.sources.cloudflare.worker_script import run_script

FLAGS = pytest.mark.parametrize("flag", [True, False], ids=["no_wait_for_wait_until", "default"])
SEEN = ("behaviours", "oracle", "broker", "tokens")
ENDS = ("deleted", "released", "dead_lettered", "dropped")
BATCH_TIMEOUT_MS = 100
SLACK_MS = 1_500  # timers on a busy machine

Fate = tuple[str, int | None]
"""`acked` or `retried`, and the delay in seconds if one was given."""


@dataclass(frozen=True)
class Table:
    """The script's observations; events by message id, without duplicates."""

    behaviours: list[dict[str, Any]]
    oracle: list[dict[str, Any]]
    broker: list[dict[str, Any]]
    events: Mapping[str, list[dict[str, Any]]]
    batches: list[dict[str, Any]]
    tokens: list[str]

    def name(self, queue: str) -> str:
        """Return the behaviour that a queue was created for."""
        name: str = self.behaviours[int(queue.rpartition("-")[2])]["name"]
        return name


@pytest.fixture(scope="module")
def table(node: Node) -> Table:
    """All behaviours, run once: about 20 s."""
    answer = run_script(node, "table.mjs", timeout_s=120)
    events: dict[str, list[dict[str, Any]]] = defaultdict(list)
    seen: set[str] = set()
    for event in answer["events"]:
        if repr(event) in seen or "message_id" not in event:
            continue
        seen.add(repr(event))
        events[event["message_id"]].append(event)
    batches = {repr(e): e for e in answer["events"] if e["type"] == "batch"}
    return Table(events=events, batches=list(batches.values()), **{k: answer[k] for k in SEEN})


def test_the_table_covers_at_least_forty_behaviours(table: Table) -> None:
    """The tests below prove only what the table covers."""
    assert len(table.behaviours) >= 40


@FLAGS
def test_the_runtimes_verdict_is_the_same_bare_and_wrapped(table: Table, flag: bool) -> None:
    """No field of the verdict differs, for any behaviour."""
    verdicts: dict[str, dict[bool, Any]] = defaultdict(dict)
    for row in _oracle(table, flag):
        verdicts[row["behaviour"]][row["wrapped"]] = _by_label(row["verdict"])
    assert len(verdicts) == len(table.behaviours)
    assert {name: v for name, v in verdicts.items() if v[True] != v[False]} == {}


@FLAGS
def test_the_recorded_outcome_is_the_runtimes_verdict(table: Table, flag: bool) -> None:
    """For every message of every behaviour, the recorded outcome and delay match the verdict."""
    delays = {b["name"]: b["retryDelay"] for b in table.behaviours}
    mismatches = {}
    for row in _oracle(table, flag):
        if not row["wrapped"]:
            continue
        expected: dict[str, Fate | str] = dict(fates(row["verdict"], row["ids"], delays[row["behaviour"]]))
        recorded = {message_id: _recorded_fate(table.events[message_id]) for message_id in row["ids"]}
        if recorded != expected:
            mismatches[row["behaviour"]] = {"recorded": recorded, "expected": expected}
    assert mismatches == {}


@FLAGS
def test_deliveries_are_the_same_bare_and_wrapped(table: Table, flag: bool) -> None:
    """Each message is delivered as often, to the same queues, and the handler sees the same."""
    runs: dict[bool, Any] = {True: {}, False: {}}
    for wrapped, traces in runs.items():
        for delivery in _broker(table, flag, wrapped):
            trace = traces.setdefault(table.name(delivery["queue"]), [])
            where = "dlq" if delivery["queue"].startswith("dlq-") else "queue"
            notes = str(delivery["notes"])
            trace += [(where, m["label"], m["attempts"], notes) for m in delivery["messages"]]
    assert {n: sorted(t) for n, t in runs[True].items()} == {n: sorted(t) for n, t in runs[False].items()}
    assert len(runs[True]) == len(table.behaviours)


@FLAGS
def test_the_recorded_outcome_is_what_happens_next(table: Table, flag: bool) -> None:
    """The recorded outcome matches the later deliveries.

    Deleted: never again. Released: redelivered when due. Dead-lettered: in the other queue. Dropped: gone.

    The only exceptions are acknowledgements in a batch that failed or was retried as a whole: Cloudflare
    keeps them and the runtime reports them, but miniflare's broker redelivers those messages.
    """
    deliveries = _broker(table, flag, wrapped=True)
    wrong: dict[str, list[str]] = defaultdict(list)
    for delivery in deliveries:
        if delivery["queue"].startswith("dlq-"):
            continue
        for message in delivery["messages"]:
            recorded = _end_of(table.events[message["id"]], delivery["queue"], message["attempts"])
            problem = _contradiction(recorded, delivery, message, deliveries)
            if problem:
                wrong[table.name(delivery["queue"])].append(problem)
    known = {b["name"] for b in table.behaviours if b["local"]}
    needs_waiting = {"acks one, waitUntil is rejected"} if flag else set()
    assert set(wrong) == known - needs_waiting, dict(wrong)
    assert all("deleted" in problem for problems in wrong.values() for problem in problems), dict(wrong)


@FLAGS
def test_every_delivery_is_reported_as_received(table: Table, flag: bool) -> None:
    """The event carries the delivery count, the broker's send time and the latest possible end of the invocation."""
    for delivery in _broker(table, flag, wrapped=True):
        for message in delivery["messages"]:
            where = delivery["queue"], message["attempts"]
            received = [e for e in table.events[message["id"]] if e["type"] == "received"]
            of_queue = [e for e in received if (e["queue"], e["receive_count"]) == where]
            assert len(of_queue) == 1, (delivery, of_queue)
            assert of_queue[0]["sent_at"] <= of_queue[0]["at"] < of_queue[0]["invisible_until"]
            assert of_queue[0]["system"] == "cloudflare_queues"
            assert of_queue[0]["scope"] == "account"


def test_batches_add_up(table: Table) -> None:
    """Acked, retried and failed messages add up to each batch's size, and a failed batch has a reason."""
    assert table.batches
    for event in table.batches:
        counts = event["attributes"]
        assert counts["acked"] + counts["retried"] + counts["failed"] == counts["size"]
        if counts["failed"]:
            assert event["reason"].startswith(("exception", "waitUntil rejected"))
    failed = {e["batch_id"] for e in table.batches if e["attributes"]["failed"]}
    released = [e for events in table.events.values() for e in events if e["type"] == "released"]
    assert any(e["batch_id"] in failed for e in released)


def test_error_messages_stay_in_the_worker(table: Table) -> None:
    """An error message may quote a message's content, so only the error's name is reported by default."""
    reasons = {e["reason"] for events in table.events.values() for e in events if e["type"] in ENDS}
    assert any("TypeError" in reason for reason in reasons)
    assert not any(": no" in reason for reason in reasons)


def test_posts_carry_the_token(table: Table) -> None:
    """Every post carries the bearer token from the binding."""
    assert table.tokens == ["Bearer secret"]


def fates(verdict: Mapping[str, Any], ids: Sequence[str], consumer_delay_s: int | None) -> dict[str, Fate]:
    """Return the outcomes that Cloudflare documents for a verdict: explicit calls count even in a failed batch."""
    retries = {entry["msgId"]: entry.get("delaySeconds") for entry in verdict["retryMessages"]}
    batch = verdict["retryBatch"]

    def retried(*delays_s: int | None) -> Fate:
        named = [delay for delay in delays_s if delay is not None]
        return "retried", max(0, named[0]) if named else None

    def fate(message_id: str) -> Fate:
        if message_id in retries:
            return retried(retries[message_id], batch.get("delaySeconds"), consumer_delay_s)
        if message_id in verdict["explicitAcks"] or verdict["ackAll"]:
            return "acked", None
        if batch["retry"] or verdict["outcome"] != "ok":
            return retried(batch.get("delaySeconds"), consumer_delay_s)
        return "acked", None

    return {message_id: fate(message_id) for message_id in ids}


def _recorded_fate(events: Sequence[Mapping[str, Any]]) -> Fate | str:
    ends = [e for e in events if e["type"] in ENDS]
    if len(ends) != 1:
        return f"{len(ends)} outcomes"
    end = ends[0]
    if end["type"] == "deleted":
        return "acked", None
    if end["type"] != "released":
        # These rows have no retries left; the runtime's verdict still says retry.
        return "retried", None
    return "retried", None if "visible_at" not in end else round((end["visible_at"] - end["at"]) / 1000)


def _end_of(events: Sequence[Mapping[str, Any]], queue: str, attempts: int) -> Mapping[str, Any] | None:
    ends = [e for e in events if e["type"] in ENDS and e["queue"] == queue and e["receive_count"] == attempts]
    return ends[0] if len(ends) == 1 else None


def _contradiction(
    recorded: Mapping[str, Any] | None,
    delivery: Mapping[str, Any],
    message: Mapping[str, Any],
    deliveries: Sequence[Mapping[str, Any]],
) -> str | None:
    if recorded is None:
        return f"{message['label']}: no single outcome is recorded"
    later = list(_later(message, delivery, deliveries))
    next_one = delivery["queue"], message["attempts"] + 1
    again = [d for d, m in later if (d["queue"], m["attempts"]) == next_one]
    moved = [d for d, m in later if d["queue"] == recorded.get("to_queue") and m["attempts"] == 1]
    match recorded["type"]:
        case "deleted" | "dropped":
            return f"{message['label']}: {recorded['type']}, and delivered again" if later else None
        case "dead_lettered":
            return None if moved and not again else f"{message['label']}: not in {recorded['to_queue']}"
        case _:
            if not again:
                return f"{message['label']}: released, and never delivered again"
            due_ms = recorded.get("visible_at", recorded["at"])
            late_ms = again[0]["atMs"] - due_ms
            if not -50 <= late_ms <= BATCH_TIMEOUT_MS + SLACK_MS:
                return f"{message['label']}: delivered {late_ms} ms after it was due"
            return None


def _later(
    message: Mapping[str, Any], delivery: Mapping[str, Any], deliveries: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for other in deliveries:
        elsewhere = other["queue"] != delivery["queue"]
        for candidate in other["messages"]:
            if candidate["id"] != message["id"]:
                continue
            if elsewhere or candidate["attempts"] > message["attempts"]:
                yield other, candidate


def _oracle(table: Table, flag: bool) -> list[dict[str, Any]]:
    return [row for row in table.oracle if row["flag"] is flag]


def _broker(table: Table, flag: bool, wrapped: bool) -> list[dict[str, Any]]:
    return [d for d in table.broker if d["flag"] is flag and d["wrapped"] is wrapped]


def _by_label(verdict: Mapping[str, Any]) -> str:
    """Return the verdict with labels instead of message ids: the ids differ between runs by design."""
    shorter: Any = dict(verdict)
    shorter["explicitAcks"] = [_label(i) for i in verdict["explicitAcks"]]
    shorter["retryMessages"] = [r | {"msgId": _label(r["msgId"])} for r in verdict["retryMessages"]]
    return repr(shorter)


def _label(message_id: str) -> str:
    return message_id.rpartition("/")[2]
