"""The load of `make faults` and `make soak` has the properties that their conclusions rely on."""

from __future__ import annotations

import pytest

from tests.core.driving import T0, run_steps
from tests.faults.load import Load, events_of


@pytest.mark.parametrize("deletes", [False, True])
def test_every_event_is_accepted_once(deletes: bool) -> None:
    """A duplicate in an undisturbed run would hide an event doubled by a fault, and the run would wait for it in vain."""
    files = [events_of(number, T0 + 500 * number, 6, deletes=deletes) for number in range(1, 81)]
    last = run_steps([(500 * number, events) for number, events in enumerate(files, 1)])[-1]
    assert {result: n for result, n in last.events_total.items() if n} == {"accepted": sum(map(len, files))}


def test_with_deletes_the_number_of_tracked_messages_stays_constant() -> None:
    """Otherwise the soak test would grow by design."""
    files = [events_of(number, T0 + 500 * number, 6, deletes=True) for number in range(1, 31)]
    merged = run_steps([(500 * number, events) for number, events in enumerate(files, 1)])
    visible = [int(one.queues.columns["visible"][0]) for one in merged]
    assert visible == [3] * len(files)


def test_a_sender_that_failed_is_no_result() -> None:
    """It does not know how many of the last events arrived."""

    def refuse(_: object) -> None:
        raise OSError("the broker is gone")

    load = Load(refuse, events_per_s=10)
    load._thread.join()
    with pytest.raises(OSError, match="the broker is gone"):
        load.stop()
