"""ActiveMQ Classic with STOMP, advisories and broker statistics, in a container or from its Maven jars.

Tests differ in the policies of destinations, which are parameters: `start(Policy(slow_consumers=AbortSlowAck()))`.
"""

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from tests.services import containers
from tests.services.place import chosen
from tests.services.process import jar_folder, java, running, scratch_folder

_ATTRIBUTES = str | int | bool


@dataclass(frozen=True)
class AbortSlow:
    """`abortSlowConsumerStrategy`: a consumer is slow while its prefetch window is full and more messages wait."""

    max_slow_count: int = -1
    max_slow_duration_ms: int = 30_000
    check_period_ms: int = 30_000
    abort_connection: bool = False

    def xml(self) -> str:
        """Return the strategy's element."""
        return _element(
            "abortSlowConsumerStrategy",
            maxSlowCount=self.max_slow_count,
            maxSlowDuration=self.max_slow_duration_ms,
            checkPeriod=self.check_period_ms,
            abortConnection=self.abort_connection,
            ignoreNetworkConsumers=True,
        )


@dataclass(frozen=True)
class AbortSlowAck:
    """`abortSlowAckConsumerStrategy`: a consumer is slow when its last acknowledgement is too long ago."""

    max_time_since_last_ack_ms: int = 30_000
    max_slow_count: int = -1
    max_slow_duration_ms: int = 30_000
    check_period_ms: int = 30_000
    ignore_idle_consumers: bool = True
    abort_connection: bool = False

    def xml(self) -> str:
        """Return the strategy's element."""
        return _element(
            "abortSlowAckConsumerStrategy",
            maxTimeSinceLastAck=self.max_time_since_last_ack_ms,
            maxSlowCount=self.max_slow_count,
            maxSlowDuration=self.max_slow_duration_ms,
            checkPeriod=self.check_period_ms,
            ignoreIdleConsumers=self.ignore_idle_consumers,
            abortConnection=self.abort_connection,
        )


@dataclass(frozen=True)
class DeadLetters:
    """`individualDeadLetterStrategy`: one dead-letter queue per queue, named with a prefix."""

    queue_prefix: str = "DLQ."
    process_non_persistent: bool = True
    process_expired: bool = True

    def xml(self) -> str:
        """Return the strategy's element."""
        return _element(
            "individualDeadLetterStrategy",
            queuePrefix=self.queue_prefix,
            useQueueForQueueMessages=True,
            processNonPersistent=self.process_non_persistent,
            processExpired=self.process_expired,
        )


@dataclass(frozen=True)
class Policy:
    """One destination policy entry. Entries do not merge: only the most specific one applies."""

    queue: str = ">"
    """A queue name or wildcard."""
    advisories: bool = True
    """Whether the optional advisories (delivered, dispatched, consumed, slow, discarded, full) are sent."""
    dead_letters: DeadLetters | None = DeadLetters()
    """None keeps the broker's default: everything goes to `ActiveMQ.DLQ`, and non-persistent messages are lost."""
    slow_consumers: AbortSlow | AbortSlowAck | None = None
    expire_messages_period_ms: int = 1000
    queue_prefetch: int | None = None

    def xml(self) -> str:
        """Return the entry's element."""
        attributes: dict[str, _ATTRIBUTES] = {
            "queue": self.queue,
            "expireMessagesPeriod": self.expire_messages_period_ms,
        }
        for name in (
            "ForDelivery",
            "ForDispatched",
            "ForConsumed",
            "ForSlowConsumers",
            "ForDiscardingMessages",
        ):
            attributes[f"advisory{name}"] = self.advisories
        attributes["advisoryWhenFull"] = self.advisories
        if self.queue_prefetch is not None:
            attributes["queuePrefetch"] = self.queue_prefetch
        inside = ""
        if self.dead_letters:
            inside += f"<deadLetterStrategy>{self.dead_letters.xml()}</deadLetterStrategy>"
        if self.slow_consumers:
            inside += f"<slowConsumerStrategy>{self.slow_consumers.xml()}</slowConsumerStrategy>"
        return _element("policyEntry", inside, **attributes)


@dataclass(frozen=True)
class ActiveMQ:
    """A running broker on the loopback interface; it requires no login."""

    host: str
    stomp_port: int
    openwire_port: int
    broker_name: str
    classpath: str = ""
    """The classpath for a JMS client of the same release, as `java -cp` takes it; empty when the broker is a container."""


@contextmanager
def start(*policies: Policy, broker_name: str = "test", statistics: bool = True, persistent: bool = True) -> Iterator[ActiveMQ]:
    """Run a broker while the block runs, with `policies` (none: one `Policy()` for every queue).

    Raises `ServiceUnavailable`.
    """
    configured = functools.partial(configuration, broker_name=broker_name, statistics=statistics, persistent=persistent)
    if chosen().containers:
        with containers.running(definition(configured("/tmp/activemq", *policies)), _ports) as (stomp, openwire):
            yield ActiveMQ("127.0.0.1", stomp, openwire, broker_name)
        return
    classpath = f"{jar_folder('activemq')}/*"
    with scratch_folder("activemq") as folder:
        config = folder / "activemq.xml"
        config.write_text(configured(str(folder), *policies))
        command = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", classpath, "org.apache.activemq.console.Main", "start", f"xbean:file:{config}"]
        with running(command, folder / "activemq.log", _ports) as (stomp, openwire):
            yield ActiveMQ("127.0.0.1", stomp, openwire, broker_name, classpath)


def definition(config: str) -> containers.Definition:
    """Return the broker as a container with this configuration, without the image's own changes to it."""
    return containers.Definition(
        f"apache/activemq-classic:{containers.jar_version('activemq', 'activemq-broker')}",
        ("console", f"xbean:file:{containers.FOLDER}/activemq.xml"),
        files={"activemq.xml": config},
        entrypoint=("/opt/apache-activemq/bin/activemq",),
    )


def _ports(log: str) -> tuple[int, int] | None:
    """Return the ports the broker chose, once it has started; None before."""
    found = dict(re.findall(r"Listening for connections at: (stomp|tcp)://[^:\s]+:(\d+)", log))
    if "For help or more information" not in log or len(found) < 2:  # the first line it prints after the start
        return None
    return int(found["stomp"]), int(found["tcp"])


def configuration(
    data: str, *policies: Policy, broker_name: str = "test", statistics: bool = True, persistent: bool = True
) -> str:
    """Return the broker's configuration as XML, with its store in the folder `data`."""
    entries = "\n".join(policy.xml() for policy in policies or (Policy(),))
    plugins = "<plugins><statisticsBrokerPlugin/></plugins>" if statistics else ""
    broker = _element(
        "broker",
        f"""
        <destinationPolicy><policyMap><policyEntries>{entries}</policyEntries></policyMap></destinationPolicy>
        <persistenceAdapter><kahaDB directory="{data}/kahadb"/></persistenceAdapter>
        {plugins}
        <transportConnectors>
          <transportConnector name="stomp" uri="stomp://127.0.0.1:0"/>
          <transportConnector name="openwire" uri="tcp://127.0.0.1:0"/>
        </transportConnectors>
        """,
        xmlns="http://activemq.apache.org/schema/core",
        brokerName=broker_name,
        dataDirectory=data,
        useJmx=False,
        persistent=persistent,
        advisorySupport=True,
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
         http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  {broker}
</beans>
"""


def _element(tag: str, inside: str = "", /, **attributes: _ATTRIBUTES) -> str:
    written = "".join(f" {name}={quoteattr(_text(value))}" for name, value in attributes.items())
    return f"<{tag}{written}>{inside}</{tag}>"


def _text(value: _ATTRIBUTES) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
