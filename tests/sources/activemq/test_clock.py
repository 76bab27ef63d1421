"""The broker's time of advisories without a time stamp is estimated."""

from sources.activemq.clock import BrokerClock


def test_without_any_stamp_local_time_is_used() -> None:
    assert BrokerClock().at(1_000) == 1_000


def test_a_broker_clock_that_is_ahead_is_followed() -> None:
    clock = BrokerClock()
    clock.observe(broker_ms=61_000, local_ms=1_005)
    assert clock.at(1_010) == 61_005


def test_a_collector_that_lags_stamps_with_the_stream_s_time() -> None:
    """At 70 s it reads advisories from 10 s: an acknowledgement among them did not happen at 70 s."""
    clock = BrokerClock()
    clock.observe(broker_ms=0, local_ms=0)
    clock.observe(broker_ms=10_000, local_ms=70_000)
    assert clock.at(70_001) == 10_001


def test_after_a_pause_the_smallest_difference_is_used() -> None:
    clock = BrokerClock()
    clock.observe(broker_ms=0, local_ms=20)
    clock.observe(broker_ms=10_000, local_ms=70_000)
    assert clock.at(200_000) == 199_980


def test_a_difference_from_before_a_clock_step_is_forgotten() -> None:
    clock = BrokerClock()
    clock.observe(broker_ms=0, local_ms=0)
    for minute in range(1, 41):
        # This machine's clock was set forward by a second.
        clock.observe(broker_ms=minute * 60_000, local_ms=minute * 60_000 + 1_000)
    assert clock.offset_ms == 1_000


def test_a_difference_from_before_this_clock_was_set_forward_overnight_is_forgotten() -> None:
    clock = BrokerClock()
    clock.observe(broker_ms=0, local_ms=0)
    clock.observe(broker_ms=36_000_000, local_ms=36_060_000)
    assert clock.offset_ms == 60_000
