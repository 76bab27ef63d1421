"""The metrics of the pipeline itself."""

from __future__ import annotations

from collections import Counter

import structlog

from streaming.core.reporting.merge import Merged, MergedQueues
from streaming.core.settings import Settings
from streaming.health.losses import NOTHING, Losses
from streaming.health.monitor import Monitor
from streaming.health.progress import Progress


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def merged(events: int, high_water: int) -> Merged:
    """Return a report of `events` events in total, the newest of them at `high_water`."""
    return Merged(0, 0, MergedQueues([], Settings()), [], 100, Counter(accepted=events), Counter(), {}, [], high_water)


def progress(batch_id: int, **others: int) -> Progress:
    """Return the progress of a committed batch of 2 s."""
    return Progress(batch_id, 2.0, others.get("waiting"), {})


def test_rate_and_lag_are_of_this_batch_duration_and_backlog_of_the_previous_one() -> None:
    """Duration and backlog are known only after a batch is committed."""
    clock = Clock()
    monitor = Monitor(clock)
    first = monitor.published(0, merged(100, clock.ms - 500), state_bytes=10, state_rows=3)
    assert (first.events_per_s, first.lag_s, first.batch_duration_s, first.lag_records) == (None, 0.5, None, None)
    monitor.progressed(progress(0, waiting=9))
    clock.ms += 2_000
    second = monitor.published(1, merged(500, clock.ms - 250), state_bytes=11, state_rows=4)
    assert (second.events_per_s, second.lag_s, second.batch_duration_s, second.lag_records) == (200.0, 0.25, 2.0, 9)
    assert (second.batch_id, second.last_batch_at_ms, second.state_bytes, second.state_rows) == (1, clock.ms, 11, 4)


def test_a_batch_that_runs_again_and_again_is_not_a_recent_one() -> None:
    """On a full disk it fails after it was published: with its latest time, the alert on the last batch would never fire."""
    clock = Clock()
    monitor = Monitor(clock)
    monitor.published(7, merged(100, 0), 0, 0)
    began_ms = clock.ms + 2_000
    for _ in range(3):
        clock.ms += 2_000
        assert monitor.published(8, merged(200, 0), 0, 0).last_batch_at_ms == began_ms
    assert monitor.published(9, merged(200, 0), 0, 0).last_batch_at_ms == clock.ms


def test_the_lag_does_not_grow_while_nothing_is_sent() -> None:
    """After a quiet hour the lag is not an hour."""
    clock = Clock()
    monitor = Monitor(clock)
    monitor.published(0, merged(100, clock.ms - 500), 0, 0)
    clock.ms += 3_600_000
    assert monitor.published(1, merged(100, clock.ms - 3_600_500), 0, 0).lag_s == 0.5


def test_a_sender_whose_clock_is_ahead_gives_no_negative_lag() -> None:
    """Before the first event there is no lag."""
    clock = Clock()
    monitor = Monitor(clock)
    assert monitor.published(0, merged(0, 0), 0, 0).lag_s is None
    assert monitor.published(1, merged(1, clock.ms + 9_000), 0, 0).lag_s == 0


def test_a_batch_after_a_roll_back_gives_no_negative_rate() -> None:
    """Where a damaged checkpoint goes back, its totals are smaller than what was published before."""
    clock = Clock()
    monitor = Monitor(clock)
    monitor.published(9, merged(1_000, clock.ms), 0, 0)
    clock.ms += 1_000
    assert monitor.published(5, merged(400, clock.ms), 0, 0).events_per_s == 0
    clock.ms += 1_000
    assert monitor.published(6, merged(600, clock.ms), 0, 0).events_per_s == 200


def test_the_last_committed_batch_is_known() -> None:
    """There is none before the first commit; a failure counts as new if a batch was committed since the last one."""
    monitor = Monitor(Clock())
    assert monitor.last_committed is None
    monitor.progressed(progress(3))
    monitor.progressed(progress(4))
    assert monitor.last_committed == 4


def test_a_lost_file_is_named_in_the_log_whatever_its_bytes_are() -> None:
    """Readers of JSON refuse the form in which Python keeps bytes that are not UTF-8."""
    with structlog.testing.capture_logs() as logs:
        Monitor(Clock()).lost_files(1, {"caf\udce9.ndjson"}, {"caf\udce9.json"})
    assert [line["files"] for line in logs] == [["caf\ufffd.ndjson"], ["caf\ufffd.json"]]


def test_the_log_counts_lost_records_without_lost_files() -> None:
    """Both are in the checkpoint, in one mapping."""
    with structlog.testing.capture_logs() as logs:
        Monitor(Clock()).lost(1, Losses({("events", 0): 5}), {"events/0": 7, "spool": 2, "spool_refused": 1})
    assert [line["lost_so_far"] for line in logs] == [7]


def test_lost_files_are_shown_by_reason_beside_lost_records() -> None:
    """A checkpoint of an earlier release has no count of refused files."""
    monitor = Monitor(Clock())
    monitor.lost(1, NOTHING, {"events/0": 7, "spool": 2})
    records, files, _ = monitor.families()
    assert (records.samples, files.samples) == ([({"topic": "events", "partition": "0"}, 7)], [({"reason": "gone"}, 2)])
    monitor.lost(2, NOTHING, {"spool": 2, "spool_refused": 1})
    assert list(monitor.families())[1].samples == [({"reason": "gone"}, 2), ({"reason": "refused"}, 1)]
