"""Controls for a real broker: STOMP clients, a JMS client, and a recorder of every advisory the broker sends."""

import queue
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import stomp

from sources.activemq.config import ActiveMQCollectorConfig, parse_address
from sources.activemq.connection import open_session
from sources.activemq.inbox import Inbox, Incoming
from sources.activemq.watch import ADVISORIES, advisory_topics
from tests.services.activemq import ActiveMQ
from tests.services.process import ServiceUnavailable, java

_SOURCE = Path(__file__).with_name("JmsClient.java")


class Client(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no types
    """A STOMP application; received messages are in `inbox` as frames."""

    def __init__(self, broker: ActiveMQ) -> None:
        self.inbox: queue.Queue[stomp.utils.Frame] = queue.Queue()
        self.connection = stomp.Connection12([(broker.host, broker.stomp_port)])
        self.connection.set_listener("application", self)
        self.connection.connect(wait=True)
        self._subscriptions = 0

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.inbox.put(frame)

    def subscribe(self, name: str, prefetch: int = 10, ack: str = "client-individual", **headers: str) -> str:
        """Subscribe to a queue and return the subscription's id."""
        self._subscriptions += 1
        subscription = str(self._subscriptions)
        headers["activemq.prefetchSize"] = str(prefetch)
        self.connection.subscribe(f"/queue/{name}", id=subscription, ack=ack, headers=headers)
        return subscription

    def send(self, name: str, **headers: str) -> None:
        """Send one persistent message; `headers` (with `_` for `-`) add or override headers."""
        headers = {"persistent": "true", **{key.replace("_", "-"): value for key, value in headers.items()}}
        self.connection.send(f"/queue/{name}", "some words", headers=headers)

    def receive(self, within_s: float = 5) -> stomp.utils.Frame:
        """Return the next message. Raises `queue.Empty`."""
        return self.inbox.get(timeout=within_s)

    def ack(self, frame: stomp.utils.Frame, transaction: str | None = None) -> None:
        """Acknowledge a message."""
        self.connection.ack(frame.headers["ack"], transaction=transaction)

    def nack(self, frame: stomp.utils.Frame) -> None:
        """Reject a message."""
        self.connection.nack(frame.headers["ack"])

    def close(self) -> None:
        """Disconnect cleanly."""
        if self.connection.is_connected():
            self.connection.disconnect()

    def drop(self) -> None:
        """Drop the connection without DISCONNECT, as a dying process does."""
        self.connection.transport.disconnect_socket()


class Jms:
    """A JMS client in its own process; `JmsClient.java` lists its actions."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, action: str, name: str) -> None:
        """Do `action` on a queue and wait until it has finished."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{action} {name}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer == "done", answer


@contextmanager
def jms_client(broker: ActiveMQ, jmx_port: int) -> Iterator[Jms]:
    """Run a JMS client while the block runs. Raises `ServiceUnavailable` where Java comes without a compiler."""
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", broker.classpath, str(_SOURCE)]
    command += [f"tcp://127.0.0.1:{broker.openwire_port}", str(jmx_port), broker.broker_name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            _, said = process.communicate(timeout=10)
            raise ServiceUnavailable(f"no JMS client: {said.strip().splitlines()[-1:]}")
        yield Jms(process)
    finally:
        process.kill()
        process.communicate()


class Lab:
    """One broker, its clients, which `close` closes, and the JMS client."""

    def __init__(self, broker: ActiveMQ, jms: Jms | None = None) -> None:
        self.broker = broker
        self._jms = jms
        self._clients: list[Client] = []

    def client(self) -> Client:
        """Connect a new application."""
        client = Client(self.broker)
        self._clients.append(client)
        return client

    def jms(self, action: str, name: str) -> None:
        """Let the JMS client do `action` on a queue."""
        assert self._jms is not None, "this lab has no JMS client"
        self._jms(action, name)

    def close(self) -> None:
        """Close every client."""
        for client in self._clients:
            client.close()
        self._clients = []


class Recorder:
    """Records every advisory of a broker as it was received."""

    def __init__(self, broker: ActiveMQ) -> None:
        address = f"stomp://{broker.host}:{broker.stomp_port}"
        config = ActiveMQCollectorConfig(addresses=(address,), probe_queue=None)
        self._inbox = Inbox(100_000)
        self._session = open_session(config, parse_address(address), self._inbox)
        headers = {"transformation": "jms-advisory-json"}
        self._session.subscribe(advisory_topics(config), ADVISORIES, headers)
        self.frames: list[Incoming] = []

    def record(self, quiet_s: float = 0.5) -> list[Incoming]:
        """Return what was reported since the last call, after `quiet_s` without a new advisory."""
        found: list[Incoming] = []
        heard_s = time.monotonic()
        while time.monotonic() - heard_s < quiet_s:
            if taken := self._inbox.take(0.05):
                found += taken
                heard_s = time.monotonic()
        return found

    def close(self) -> None:
        """Disconnect."""
        self._inbox.close()
        self._session.close()
