"""Each metric of the contract: its value minute by minute, its labels, and its absence where the value is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.replaying import Lines, ev, ms, replayed

pytestmark = pytest.mark.simulation

Events = list[dict[str, Any]]
GOOD: Events = [
    e
    for n in range(25)
    for e in (
        ev("sent", 60 * n + 1, message_id=f"g{n}"),
        ev("received", 60 * n + 2, message_id=f"g{n}", receive_count=1),
        ev("deleted", 60 * n + 3, message_id=f"g{n}"),
    )
]
ATTRIBUTES = {"kind": "standard", "visibility_timeout_s": 120}
REDRIVE = ATTRIBUTES | {"max_receive_count": 6, "dead_letter_queue": "dead"}


def never_deleted(receives: int, attributes: dict[str, Any], *, counted: bool = True) -> Events:
    """Return a message received every two minutes from the first minute on, as soon as its window ends."""
    events = [ev("queue_state", 0, attributes=attributes), ev("sent", 0, message_id="bad")]
    for n in range(receives):
        count: dict[str, Any] = {"receive_count": n + 1} if counted else {}
        events.append(ev("received", 60 + 120 * n, message_id="bad", **count))
    return events


def moved(at_s: float) -> dict[str, Any]:
    """Return the move of the message to the dead-letter queue."""
    return ev("dead_lettered", at_s, message_id="bad", to_queue="dead")


def minutes(lines: Lines, scope: str, until: int, queue: str = "q") -> list[int | None]:
    """Return the age in whole minutes at each minute, None where there is none."""
    ages = lines.metric("oldest_message_age_seconds", queue=queue, scope=scope)
    return [round(ages[60 * n] / 60) if 60 * n in ages else None for n in range(1, until + 1)]


SIX = [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5]
THRICE = [*SIX, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("beside", [[], GOOD], ids=["alone", "beside good messages"])
def test_cloudwatch_age_with_six_receives_allowed(tmp_path: Path, beside: Events) -> None:
    """It restarts when the third receive ends and drops at the move; the dead-letter queue counts from the move."""
    events = sorted([*never_deleted(6, REDRIVE), moved(780), *beside], key=lambda e: int(e["at"]))
    lines = replayed(events, tmp_path, until_s=1200, apart_s=10)
    assert minutes(lines, "cloudwatch", 20) == [*SIX, *[None] * 8]
    assert minutes(lines, "all", 20) == [*range(1, 13), *[None] * 8]
    assert minutes(lines, "visible", 20) == [None] * 20
    assert minutes(lines, "healthy", 20) == [1, 2, 3, 4, *[None] * 16]
    assert minutes(lines, "cloudwatch", 20, "dead") == [*[None] * 12, 0, 1, 2, 3, 4, 5, 6, 7]
    assert minutes(lines, "all", 20, "dead") == [*[None] * 12, *range(13, 21)]


@pytest.mark.parametrize("counted", [True, False], ids=["counted by the broker", "counted here"])
def test_cloudwatch_age_without_a_redrive_policy(tmp_path: Path, counted: bool) -> None:
    """It restarts when the 3rd, 6th and 9th receive ends; the true age does not."""
    lines = replayed(never_deleted(10, ATTRIBUTES, counted=counted), tmp_path, until_s=1440, apart_s=10)
    assert minutes(lines, "cloudwatch", 24) == THRICE
    assert minutes(lines, "all", 24) == list(range(1, 25))
    assert minutes(lines, "visible", 24) == [*[None] * 20, 21, 22, 23, 24]


def test_cloudwatch_age_restarts_however_many_receives_there_were(tmp_path: Path) -> None:
    """Also where they carry no count and the first of them are no longer listed."""
    with_counts, without = (
        replayed(never_deleted(50, ATTRIBUTES, counted=counted), tmp_path, until_s=6_300, apart_s=30) for counted in (True, False)
    )
    ages = minutes(without, "cloudwatch", 100)
    assert ages == minutes(with_counts, "cloudwatch", 100)
    assert set(ages[6:]) == {0, 1, 2, 3, 4, 5}


def test_cloudwatch_age_does_not_restart_on_fifo(tmp_path: Path) -> None:
    """A failing head keeps its age."""
    events = [{**e, "queue": "q.fifo"} for e in never_deleted(10, ATTRIBUTES)]
    lines = replayed(events, tmp_path, until_s=1440, apart_s=10)
    assert minutes(lines, "cloudwatch", 24, "q.fifo") == list(range(1, 25))


def test_cloudwatch_age_restarts_at_a_release(tmp_path: Path) -> None:
    """A release ends the third receive before its window would."""
    events = [ev("queue_state", 0, attributes=ATTRIBUTES), ev("sent", 0, message_id="bad")]
    for n in range(3):
        events += [
            ev("received", 60 + 60 * n, message_id="bad", receive_count=n + 1),
            ev("released", 90 + 60 * n, message_id="bad"),
        ]
    ages = replayed(events, tmp_path, until_s=300).metric("oldest_message_age_seconds", scope="cloudwatch")
    assert ages == {60: 60, 120: 120, 180: 180, 240: 30, 300: 90}


def test_a_dead_letter_that_is_looked_at_keeps_its_age(tmp_path: Path) -> None:
    """Its receive count continues from the source queue; its age nevertheless counts from the arrival."""
    look = ev("received", 840, "dead", message_id="bad", receive_count=7)
    lines = replayed([*never_deleted(6, REDRIVE), moved(780), look], tmp_path, until_s=1080, apart_s=10)
    assert minutes(lines, "cloudwatch", 18, "dead") == [*[None] * 12, 0, 1, 2, 3, 4, 5]
    assert ms(780) == lines.metric("oldest_message_timestamp_seconds", queue="dead", scope="cloudwatch")[900] * 1000


def spread(kind: str, n: int) -> Events:
    """Return `n` messages, each with its own group and consumer; the first group is named `other`."""
    events = []
    for i in range(n):
        name = "other" if i == 0 else f"{kind}{i:02d}"
        about = {"message_id": f"m{i}", **({"group": name} if kind == "group" else {})}
        events.append(ev("sent", i, **about))
        if kind == "consumer":
            events.append(ev("received", 20 + i, consumer=name, invisible_until=ms(9_000), **about))
    return events


@pytest.mark.parametrize(
    ("kind", "metric"), [("group", "group_oldest_message_age_seconds"), ("consumer", "consumer_oldest_held_seconds")]
)
def test_top_ten_and_other(tmp_path: Path, kind: str, metric: str) -> None:
    """The ten oldest appear by name, the rest as `other` with the age of its oldest message, and their number is counted."""
    lines = replayed(spread(kind, 14), tmp_path, until_s=120)
    last = [x for x in lines.lines if x["kind"] == "metric" and x["name"] == f"queuewatch_{metric}" and x["at"] == ms(120)]
    ages = {x["labels"][kind]: x["value"] for x in last}
    assert len(last) == len(ages)
    assert sorted(ages) == [f"{kind}{i:02d}" for i in range(1, 10)] + ["other"]
    assert ages["other"] == max(ages.values()) == (120 if kind == "group" else 100)
    assert lines.metric("folded_total", what=f"{kind}s")[120] == 4


def test_a_queue_that_vanished_and_returns_goes_on_counting(tmp_path: Path) -> None:
    """Its series end after an hour without events; its totals continue from the start of the checkpoint when it returns."""
    once = [ev("sent", 0, message_id="a"), ev("received", 1, message_id="a", receive_count=1), ev("deleted", 2, message_id="a")]
    again = [{**e, "at": e["at"] + 7_200_000, "message_id": "b"} for e in once]
    others = [ev("sent", 600 * n, "busy", message_id=f"m{n}") for n in range(13)]
    lines = replayed(sorted([*once, *others, *again], key=lambda e: int(e["at"])), tmp_path, every="600s", until_s=7_800)
    deleted = lines.metric("messages_deleted_total", queue="q")
    assert {at: deleted.get(at) for at in (600, 3_600, 4_200, 6_600, 7_800)} == {
        600: 1,
        3_600: 1,
        4_200: None,
        6_600: None,
        7_800: 2,
    }


def test_an_empty_queue_has_31_series_without_its_durations(tmp_path: Path) -> None:
    """Every state and every total is among them, at zero; ages and what else is not known have none."""
    counted = [ev("queue_state", 30 * n, attributes=ATTRIBUTES | {"visible": 0, "in_flight": 0, "delayed": 0}) for n in range(60)]
    lines = replayed(sorted([*GOOD, *counted], key=lambda e: int(e["at"])), tmp_path, until_s=1_800)
    last = [x for x in lines.lines if x["kind"] == "metric" and x["at"] == ms(1_800) and x["labels"].get("queue") == "q"]
    of_durations = [x for x in last if "le" in x["labels"] or x["name"].endswith(("_seconds_count", "_seconds_sum"))]
    assert len(last) - len(of_durations) == 31
    assert sum(x["name"] in ("queuewatch_queue_status", "queuewatch_telemetry_basis") and x["value"] == 0 for x in last) == 11


@pytest.mark.parametrize(
    ("reported", "waited"),
    [
        ({"sent_at": ms(0), "first_received_at": ms(20)}, 20),  # by a consumer that does not report
        ({"sent_at": ms(0), "first_received_at": ms(99.5)}, 100),  # this very receive, by the broker's clock
        ({"sent_at": ms(0)}, 100),
        ({"first_received_at": ms(20)}, None),  # sent at an unknown time
    ],
)
def test_a_message_waits_until_its_first_receive_whoever_received_it(
    tmp_path: Path, reported: dict[str, int], waited: float | None
) -> None:
    """A broker reports the first receive with each later one."""
    about: dict[str, Any] = {"receive_count": 3, **reported}
    events = [ev("received", 100, message_id="m", **about), ev("deleted", 110, message_id="m")]
    metric = replayed(events, tmp_path, every="60s", until_s=180).metric
    assert metric("wait_seconds_sum").get(180) == waited
    assert metric("sojourn_seconds_sum").get(180) == (None if waited is None else 110)
    assert metric("processing_seconds_sum")[180] == 10


def test_a_first_receive_before_the_move_is_none_in_the_dead_letter_queue(tmp_path: Path) -> None:
    """There the wait ends with the first receive after the arrival."""
    events = [
        ev("sent", 0, message_id="m"),
        ev("received", 10, message_id="m", receive_count=1),
        ev("dead_lettered", 50, message_id="m", to_queue="dead"),
        ev("received", 80, "dead", message_id="m", receive_count=1, sent_at=ms(0), first_received_at=ms(10)),
        ev("deleted", 90, "dead", message_id="m"),
    ]
    assert replayed(events, tmp_path, until_s=180).metric("wait_seconds_sum", queue="dead")[180] == 80
