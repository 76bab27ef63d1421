"""A running broker still behaves as recorded: every sequence of advisories becomes the expected events."""

import pytest

from sources.events import Event
from tests.services.process import free_port
from tests.sources.activemq import broker
from tests.sources.activemq.lab import Lab, Recorder, jms_client
from tests.sources.activemq.needs import services
from tests.sources.activemq.orders import ORDERS, Order
from tests.sources.activemq.record import SETUP
from tests.sources.activemq.test_orders import translate

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def reported() -> dict[str, list[Event]]:
    """Events of every sequence. All run at once on one broker, each with a queue of its own."""
    jmx_port = free_port()
    setup = broker.Setup(policies=SETUP.policies, jmx_port=jmx_port)
    with services(), broker.start(setup) as running, jms_client(running, jmx_port) as jms:
        recorder = Recorder(running)
        lab = Lab(running, jms)
        recorder.record(0.3)
        for order in ORDERS:
            order.do(lab, order.queue)
        frames = recorder.record(max(order.advisories_take_s for order in ORDERS))
        lab.close()
        recorder.close()
    return {
        order.name: translate([frame for frame in frames if order.is_about(frame.headers["destination"])]) for order in ORDERS
    }


@pytest.mark.parametrize("order", [pytest.param(order, id=order.name) for order in ORDERS])
def test_a_running_broker_gives_the_expected_events(reported: dict[str, list[Event]], order: Order) -> None:
    order.check(reported[order.name])
