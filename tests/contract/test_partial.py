"""Partial telemetry: each published value is exact, marked as a bound, or absent; signals fire only on sufficient bases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.replaying import Lines, ev, replayed

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
END_S = 2_400


def counted(visible: list[int], every_s: int = 30, in_flight: int = 0, queue: str = "q", **more: Any) -> Events:
    """Return the broker's counts, poll after poll."""
    attributes = {"visibility_timeout_s": 30, "in_flight": in_flight, "delayed": 0, **more}
    return [ev("queue_state", every_s * i, queue, attributes=attributes | {"visible": n}) for i, n in enumerate(visible)]


def worked(until_s: int, every_s: int = 2, *, sends: bool = True, deliveries: bool = True) -> Events:
    """Return messages that are sent, received a second later and deleted half a second after that."""
    out = []
    for i in range(until_s // every_s):
        about, at = {"message_id": f"m{i}"}, i * every_s
        if sends:
            out.append(ev("sent", at, **about))
        if deliveries:
            sent_at = ev("x", at)["at"]
            out.append(ev("received", at + 1, receive_count=1, consumer="w", sent_at=sent_at, **about))
            out.append(ev("deleted", at + 1.5, **about))
    return out


def ordered(events: Events) -> Events:
    """Return them by time, as a collector and clients would have written them."""
    return sorted(events, key=lambda e: e["at"])


def basis(lines: Lines, at_s: float, queue: str = "q") -> str:
    """Return the basis published at a time."""
    states = ("messages", "consumers", "producers", "partial", "counts", "unknown")
    return next(b for b in states if lines.metric("telemetry_basis", queue=queue, basis=b).get(at_s) == 1)


def test_consumers_only_whose_consumers_die(tmp_path: Path) -> None:
    """The broker's count is published, the death fires a signal within six minutes, and the status is never ok."""
    died_s = 1_200
    polls = [0] * (died_s // 30 + 1) + [15 * i for i in range(1, (END_S - died_s) // 30)]
    lines = replayed(ordered(worked(died_s, sends=False) + counted(polls)), tmp_path, apart_s=10)
    assert basis(lines, 1_140) == "consumers"
    (reported,) = lines.times("QueueStalled", "firing")
    assert died_s < reported <= died_s + 360
    depth = lines.metric("queue_messages", queue="q", state="visible")
    assert depth[2_100] == polls[70]
    assert lines.metric("queue_status", queue="q", status="ok")[2_100] == 0
    assert lines.signals("QueueStalled", "firing")[0]["evidence"]["basis"] == "consumers"


def test_producers_only_of_a_healthy_queue_page_nobody(tmp_path: Path) -> None:
    """With sends and a count near zero there is no stall and no age of hours, and impossible rows are dropped."""
    polls = [1 + i % 2 for i in range(END_S // 30)]
    events = worked(END_S, every_s=1, deliveries=False) + counted(polls, in_flight=1)
    lines = replayed(ordered(events), tmp_path, apart_s=10)
    assert basis(lines, 1_200) == "producers"
    assert not [x for x in lines.signals() if x["severity"] == "critical"]
    ages = lines.metric("oldest_message_age_seconds", queue="q")
    assert max((age for at, age in ages.items() if at > 120), default=0) < 120
    tracked = lines.metric("tracked_messages", queue="q", state="visible")
    assert max(tracked.values()) < 1_500
    assert lines.metric("messages_reconciled_total", queue="q")[END_S - 60] > 500


def test_a_backlog_known_by_counts_alone_is_stopped(tmp_path: Path) -> None:
    """From 100 to 500 with nothing in flight: not ok, signalled, and with an age that says it is a lower bound."""
    lines = replayed(counted([100 + 5 * i for i in range(80)]), tmp_path, apart_s=10)
    assert basis(lines, 1_200) == "counts"
    assert lines.metric("queue_status", queue="q", status="stopped")[1_200] == 1
    (fired,) = lines.signals("QueueStalled", "firing")
    assert fired["evidence"]["basis"] == "counts"
    age = lines.metric("oldest_message_age_seconds", queue="q", scope="visible")
    assert 900 <= age[1_200] <= 1_200
    assert lines.metric("oldest_message_age_exact", queue="q", scope="visible")[1_200] == 0
    assert not lines.metric("poison_messages", queue="q")
    assert not lines.metric("messages_sent_total", queue="q")


def test_a_growing_count_with_work_in_flight_is_lagging(tmp_path: Path) -> None:
    """Consumers work, and the backlog grows nevertheless."""
    lines = replayed(counted([100 + 10 * i for i in range(60)], in_flight=4), tmp_path, apart_s=10)
    assert lines.metric("queue_status", queue="q", status="lagging")[1_200] == 1
    assert not lines.signals("QueueStalled")


def test_a_dead_letter_queue_that_fills_is_announced_from_its_counts(tmp_path: Path) -> None:
    """It reports a minimum, and does not fire again when one of them is received later."""
    source = ev("queue_state", 0, attributes={"dead_letter_queue": "d"})
    events = [source, *counted([0] * 5 + [3] * 40, queue="d")]
    events.append(ev("received", 900, "d", message_id="late", receive_count=5, from_queue="q"))
    lines = replayed(ordered([*events, ev("heartbeat", 1_500, consumer="x")]), tmp_path, apart_s=10)
    (fired,) = lines.signals("DeadLetterArrived", "firing", queue="d")
    assert (fired["evidence"]["at_least"], fired["evidence"]["known_by"]) == (3, "counts")
    assert 150 <= lines.times("DeadLetterArrived", "firing", queue="d")[0] <= 300


def test_coverage_exists_when_the_broker_counts_nothing(tmp_path: Path) -> None:
    """Many tracked and none counted is the worst coverage, not an unknown one."""
    sends = [ev("sent", 400 + i, message_id=f"m{i}") for i in range(50)]
    lines = replayed(ordered(counted([0] * 18) + sends), tmp_path)
    assert lines.metric("telemetry_coverage_ratio", queue="q")[480] > 10


def test_coverage_compares_a_count_with_what_was_tracked_at_its_time(tmp_path: Path) -> None:
    """Between two polls a backlog grows and shrinks; complete telemetry is complete all the while."""
    events = [ev("sent", 1 + i / 10, message_id=f"m{i}") for i in range(900)]
    events += [ev("deleted", 120 + i / 4, message_id=f"m{i}") for i in range(600)]
    polls = [(at, min(10 * max(at - 1, 0), 900) - 4 * min(max(at - 120, 0), 150)) for at in range(0, 300, 60)]
    events += [
        ev("queue_state", at + 0.05, attributes={"visible": visible, "in_flight": 0, "delayed": 0}) for at, visible in polls
    ]
    lines = replayed(ordered([*events, ev("heartbeat", 300, consumer="x")]), tmp_path, every="10s", apart_s=10)
    assert all(0.98 <= ratio <= 1.02 for ratio in lines.metric("telemetry_coverage_ratio", queue="q").values())


@pytest.mark.parametrize(
    ("system", "visible", "ratio"),
    [("aws_sqs", 5, 1), ("cloudflare_queues", 5, 1), ("aws_sqs", 15, 1), ("aws_sqs", 3, 5 / 3), ("aws_sqs", 20, 15 / 20)],
)
def test_a_count_without_the_messages_in_flight_covers_any_part_of_them(
    tmp_path: Path, system: str, visible: int, ratio: float
) -> None:
    """Five messages wait and ten are in flight: a count of the waiting ones is no less, and none is more than fifteen."""
    events = []
    for at in range(400):
        about = {"message_id": f"m{at}", "system": system}
        events += [ev("sent", at, **about), ev("received", at + 5, receive_count=1, **about), ev("deleted", at + 15, **about)]
    events += [ev("queue_state", at + 0.5, system=system, attributes={"visible": visible}) for at in range(60, 400, 60)]
    ratios = replayed(ordered(events), tmp_path, until_s=390, apart_s=5).metric("telemetry_coverage_ratio", queue="q")
    assert set(ratios.values()) == {ratio}


def test_full_telemetry_is_exact_and_says_so(tmp_path: Path) -> None:
    """Sends and ends are seen and the counts agree: the tracked messages are published, their ages exact."""
    events = [*worked(900), ev("sent", 600, message_id="old"), *counted([1] * 20 + [2] * 20)]
    lines = replayed(ordered(events), tmp_path, apart_s=10)
    assert basis(lines, 840) == "messages"
    assert lines.metric("oldest_message_age_seconds", queue="q", scope="all")[840] == pytest.approx(240, abs=1)
    assert lines.metric("oldest_message_age_exact", queue="q", scope="all")[840] == 1


@pytest.mark.parametrize(
    ("polls", "polled_s", "until_exact_s"),
    [
        pytest.param([1] * 20 + [2] * 20, 30, 1_770, id="polls every half minute"),
        pytest.param([1, 1, 1, 2], 900, 4_510, id="polls every quarter of an hour"),
        pytest.param([], 30, 5_400, id="it was never counted: nothing happens there"),
    ],
)
def test_no_age_is_exact_once_a_counted_queue_is_unheard_of(
    polls: list[int], polled_s: int, until_exact_s: int, tmp_path: Path
) -> None:
    """Its producers, consumers and collector are silent, so that nothing shows whether the message still waits."""
    events = [*worked(max(900, polled_s * len(polls))), ev("sent", 600, message_id="old")]
    events += [*counted(polls, polled_s), *(ev("heartbeat", at, consumer="x") for at in range(0, 5_401, 300))]
    exact = replayed(ordered(events), tmp_path, apart_s=10).metric("oldest_message_age_exact", queue="q", scope="all")
    assert max(at for at, is_exact in exact.items() if is_exact) // 60 == until_exact_s // 60


@pytest.mark.parametrize(("known", "exact"), [({}, 0), ({"sent_at": ev("x", -100)["at"]}, 1)], ids=["unknown", "known"])
def test_the_age_of_a_dead_letter_is_exact_only_if_its_send_time_is_known(
    tmp_path: Path, known: dict[str, Any], exact: int
) -> None:
    """Until then it counts from the move. The age that CloudWatch shows does so in any case."""
    lines = replayed(
        [ev("dead_lettered", 0, message_id="m", to_queue="q-dlq", **known), ev("heartbeat", 300, consumer="x")], tmp_path
    )
    assert lines.metric("oldest_message_age_seconds", queue="q-dlq", scope="all")[300] == (400 if exact else 300)
    for scope in ("all", "visible", "healthy"):
        assert lines.metric("oldest_message_age_exact", queue="q-dlq", scope=scope)[300] == exact
    assert lines.metric("oldest_message_age_exact", queue="q-dlq", scope="cloudwatch")[300] == 1


def test_an_age_stays_exact_while_the_report_of_a_send_may_follow(tmp_path: Path) -> None:
    """Producers and consumers report in their own time: only a send that is still missing after ten seconds makes it a bound."""
    events = counted([1] * 30)
    events.append(ev("sent", 0, message_id="old"))
    for i in range(80):
        at, message_id = 10 * i + 4, f"m{i}"
        events += [ev("sent", at, message_id=message_id), ev("received", at + 1, message_id=message_id, receive_count=1)]
        events.append(ev("deleted", at + 2, message_id=message_id))
    events += [ev("received", 805, message_id="late", receive_count=1), ev("heartbeat", 840, consumer="x")]
    lines = replayed(ordered(events), tmp_path, every="10s", apart_s=5)
    exact = lines.metric("oldest_message_age_exact", queue="q", scope="all")
    assert (exact[800], exact[810], exact[820]) == (1, 1, 0)


def test_an_unknown_queue_is_never_ok(tmp_path: Path) -> None:
    """Settings were reported once, without a count."""
    lines = replayed([ev("queue_state", 0, attributes={"kind": "standard"}), ev("heartbeat", 300, consumer="x")], tmp_path)
    assert lines.metric("queue_status", queue="q", status="unknown")[300] == 1
    assert lines.metric("queue_status", queue="q", status="ok")[300] == 0


def test_a_concluded_dead_letter_is_a_message_of_its_queue(tmp_path: Path) -> None:
    """It has its send time and an expiry time, until the queue's own count contradicts it."""
    state = {"visibility_timeout_s": 30, "max_receive_count": 2, "dead_letter_queue": "d", "retention_s": 86_400}
    events = [ev("queue_state", 0, attributes=state), ev("queue_state", 0, "d", attributes={"retention_s": 86_400})]
    events += [ev("sent", 0, message_id="bad")]
    events += [ev("received", 10 + 40 * n, message_id="bad", receive_count=n + 1) for n in range(2)]
    events += [
        ev("queue_state", at, attributes={"visible": n, "in_flight": 0, "delayed": 0}) for at, n in ((60, 1), (85, 1), (120, 0))
    ]
    lines = replayed([*events, ev("heartbeat", 600, consumer="x")], tmp_path, apart_s=10)
    assert lines.metric("tracked_messages", queue="d", state="visible")[600] == 1
    assert lines.metric("dead_letter_expiry_seconds", queue="d")[600] == pytest.approx(86_400 - 600, abs=2)
    (fired,) = lines.signals("DeadLetterArrived", "firing", queue="d")
    assert (fired["evidence"]["known_by"], fired["message_id"]) == ("inferred", "bad")
    assert fired["evidence"]["dead_letters_now"] == 1


def test_a_dead_letter_concluded_in_a_fifo_queue_is_announced_once(tmp_path: Path) -> None:
    """It is a message of the dead-letter queue, whose depth rises by it: the rise is not a second arrival.

    Its age and its retention count from the move.
    """
    state = {"kind": "fifo", "visibility_timeout_s": 30, "max_receive_count": 2, "dead_letter_queue": "d.fifo"}
    kept = {"kind": "fifo", "retention_s": 3_600}
    events = [ev("queue_state", 0, "q.fifo", attributes=state), ev("queue_state", 0, "d.fifo", attributes=kept)]
    about = {"message_id": "bad", "group": "g"}
    events += [ev("sent", 0, "q.fifo", **about)]
    events += [ev("received", 10 + 40 * n, "q.fifo", receive_count=n + 1, **about) for n in range(2)]
    for at in range(60, 900, 30):
        there = int(at >= 90)
        for queue, visible in (("q.fifo", 1 - there), ("d.fifo", there)):
            events.append(ev("queue_state", at, queue, attributes={"visible": visible, "in_flight": 0, "delayed": 0}))
    lines = replayed(ordered([*events, ev("heartbeat", 900, consumer="x")]), tmp_path, apart_s=10)
    (fired,) = lines.signals("DeadLetterArrived", "firing", queue="d.fifo")
    assert (fired["evidence"]["known_by"], fired["message_id"]) == ("inferred", "bad")
    assert fired["evidence"]["dead_letters_now"] == 1
    assert lines.metric("tracked_messages", queue="d.fifo", state="visible")[840] == 1
    assert lines.metric("messages_dead_lettered_total", queue="q.fifo")[840] == 1
    # Its last window ended at 80 s.
    assert lines.metric("dead_letter_expiry_seconds", queue="d.fifo")[840] == pytest.approx(3_600 - (840 - 80), abs=1)
    assert lines.metric("oldest_message_age_seconds", queue="d.fifo", scope="all")[840] == pytest.approx(840 - 80, abs=1)
    later = replayed(ordered([*events, ev("heartbeat", 3_000, consumer="x")]), tmp_path, apart_s=10)
    (expiring,) = later.signals("DeadLetterExpiring", "firing", queue="d.fifo")
    assert expiring["evidence"]["message_id"] == "bad"


@pytest.mark.parametrize("sent", [2, 20])
def test_a_count_may_be_from_before_what_happened_in_its_own_millisecond(tmp_path: Path, sent: int) -> None:
    """A recording often begins with a count and the first sends at one time, and polls fall on the seconds of the sends."""
    events = counted([0, sent - 1, sent - 1], every_s=60)
    events += [ev("sent", 0, message_id=f"m{i}", sent_at=ev("x", 0)["at"]) for i in range(sent)]
    events += [ev("received", 5, message_id="m0", receive_count=1, consumer="w"), ev("deleted", 6, message_id="m0")]
    lines = replayed(ordered(events), tmp_path, every="10s", until_s=120)
    depth = lines.metric("queue_messages", state="visible")
    assert {basis(lines, at) for at in depth} == {"messages"}
    assert set(depth.values()) == {sent - 1}
    assert lines.metric("oldest_message_age_seconds", scope="all")[90] == 90


def test_a_queue_that_is_empty_at_every_poll_is_complete_if_messages_are_sent_at_the_polls(tmp_path: Path) -> None:
    """Each is deleted two seconds after its poll, so the broker never counts one."""
    times = range(0, 1_200, 60)
    events = counted([0] * len(times), every_s=60)
    for at in times:
        events += [
            ev("sent", at, message_id=f"m{at}"),
            ev("received", at + 1, message_id=f"m{at}", receive_count=1, consumer="w"),
        ]
        events.append(ev("deleted", at + 2, message_id=f"m{at}"))
    lines = replayed(ordered(events), tmp_path, apart_s=5)
    assert {basis(lines, at) for at in lines.metric("telemetry_basis", basis="messages")} == {"messages"}


@pytest.mark.simulation
def test_by_counts_a_stall_begins_at_the_last_of_them_with_messages_in_flight(tmp_path: Path) -> None:
    """Until then, consumers may have worked."""
    polls = [(3, 4)] * 4 + [(7, 0)] * 16
    attributes = {"visibility_timeout_s": 30, "delayed": 0}
    events = [
        ev("queue_state", 30 * i, attributes=attributes | {"visible": visible, "in_flight": in_flight})
        for i, (visible, in_flight) in enumerate(polls)
    ]
    lines = replayed(events, tmp_path, until_s=600)
    assert lines.times("QueueStalled", "firing") == [90 + 300 - 30]


@pytest.mark.parametrize(("polls", "fires"), [(1, False), (2, True)])
def test_one_count_does_not_show_that_nothing_moves(tmp_path: Path, polls: int, fires: bool) -> None:
    """The second one does, however long it took to come."""
    lines = replayed(counted([5] * polls, every_s=240), tmp_path, until_s=600)
    assert bool(lines.signals("QueueStalled", "firing")) == fires


def test_no_bound_of_an_age_passes_the_reported_retention(tmp_path: Path) -> None:
    """A backlog that no longer grows because as many messages expire as are sent is at most as old as they live."""
    lines = replayed(counted([min(6 * i, 120) for i in range(80)], retention_s=600), tmp_path, every="300s", apart_s=10)
    ages = lines.metric("oldest_message_age_seconds", queue="q", scope="all")
    assert (ages[300], ages[2_100]) == (270, 600)


def test_the_depth_of_a_queue_of_which_everything_is_reported_is_what_is_tracked(tmp_path: Path) -> None:
    """Counts are a minute late, and consumers are away from 600 to 800 s: the backlog of then is not shown once they are back."""
    lives = [(at, 800 + (at - 590) / 8 if 590 <= at < 790 else at + 10) for at in range(0, 900, 2)]
    events = []
    for sent, received in lives:
        about = {"message_id": f"m{sent}"}
        events += [
            ev("sent", sent, **about),
            ev("received", received, receive_count=1, **about),
            ev("deleted", received + 1, **about),
        ]
    for at in range(0, 900, 30):
        visible = sum(sent <= at - 60 < received for sent, received in lives)
        in_flight = sum(received <= at - 60 < received + 1 for _, received in lives)
        events.append(ev("queue_state", at, attributes={"visible": visible, "in_flight": in_flight, "delayed": 0}))
    depths = replayed(ordered(events), tmp_path, until_s=895, apart_s=10).metric("queue_messages", state="visible")
    assert (depths[720], depths[780], depths[840]) == (66, 96, 5)
