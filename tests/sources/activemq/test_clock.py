"""The broker's time of what bears no stamp."""

from sources.activemq.clock import BrokerClock


def test_without_any_stamp_local_time_is_all_there_is() -> None:
    assert BrokerClock().at(1_000) == 1_000


def test_a_broker_whose_clock_is_ahead_keeps_its_time() -> None:
    clock = BrokerClock()
    clock.observe(broker_ms=61_000, local_ms=1_005)
    assert clock.at(1_010) == 61_005


def test_a_reader_that_is_behind_stamps_what_it_reads_with_the_stream_s_time() -> None:
    """It reads at 70 s what happened at 10 s: an acknowledgement among that did not happen at 70 s."""
    clock = BrokerClock()
    clock.observe(broker_ms=0, local_ms=0)
    clock.observe(broker_ms=10_000, local_ms=70_000)
    assert clock.at(70_001) == 10_001


def test_after_a_pause_the_least_difference_counts() -> None:
    clock = BrokerClock()
    clock.observe(broker_ms=0, local_ms=20)
    clock.observe(broker_ms=10_000, local_ms=70_000)
    assert clock.at(200_000) == 199_980


def test_a_difference_from_before_a_clock_was_set_is_forgotten() -> None:
    clock = BrokerClock()
    clock.observe(broker_ms=0, local_ms=0)
    for minute in range(1, 41):
        # This machine's clock was put forward by a second.
        clock.observe(broker_ms=minute * 60_000, local_ms=minute * 60_000 + 1_000)
    assert clock.offset_ms == 1_000
