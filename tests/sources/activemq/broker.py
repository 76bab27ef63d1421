"""ActiveMQ Classic with settings the shared fixture lacks: JMX, logins, TLS, a scheduler, no statistics plugin."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streaming.spark import jars
from tests.services.activemq import ActiveMQ, Policy
from tests.services.process import ServiceUnavailable, jar_folder, java, running, scratch_folder

_POM = Path(__file__).with_name("login.xml")


@dataclass(frozen=True)
class Tls:
    """The broker's certificate and key, as PKCS#12."""

    keystore: Path
    password: str


@dataclass(frozen=True)
class Setup:
    """The settings a broker is started with."""

    policies: tuple[Policy, ...] = (Policy(),)
    name: str = "test"
    statistics: bool = True
    jmx_port: int | None = None
    """The port for JMX from outside; None: none. The statistics plugin reads subscriptions through JMX in any case."""
    security: str = ""
    """XML of the plugins for logins and permissions."""
    tls: Tls | None = None


@contextmanager
def start(setup: Setup, folder: Path | None = None, stomp_port: int = 0) -> Iterator[ActiveMQ]:
    """Run a broker while the block runs; its store is in `folder`, and a later broker may reuse it.

    Raises `ServiceUnavailable`.
    """
    classpath = f"{jar_folder('activemq')}/*"
    if setup.security:
        classpath += f":{_login_jars()}/*"
    with scratch_folder("activemq") as scratch:
        data = folder or scratch
        config = scratch / "activemq.xml"
        config.write_text(_config(setup, stomp_port))
        command = [java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Damq.data={data}"]
        command += ["-cp", classpath, "org.apache.activemq.console.Main", "start", f"xbean:file:{config}"]
        with running(command, scratch / "activemq.log", _ports) as ports:
            stomp = ports["stomp+ssl"] if setup.tls else ports["stomp"]
            yield ActiveMQ("127.0.0.1", stomp, ports["tcp"], setup.name, classpath)


def _login_jars() -> Path:
    try:
        jars.resolve(_POM)
    except jars.JarsUnavailable as error:
        raise ServiceUnavailable(str(error)) from error
    return jars.cached(_POM)


def _ports(log: str) -> dict[str, int] | None:
    """Return the port of each connector once the broker has started; None before."""
    if "For help or more information" not in log:
        return None
    found = re.findall(r"Listening for connections at: ([a-z+]+)://[^:\s]+:(\d+)", log)
    return {scheme: int(port) for scheme, port in found}


def _config(setup: Setup, stomp_port: int) -> str:
    entries = "\n".join(policy.xml() for policy in setup.policies)
    plugins = setup.security + ("<statisticsBrokerPlugin/>" if setup.statistics else "")
    tls = ""
    connector = f'<transportConnector name="stomp" uri="stomp://127.0.0.1:{stomp_port}"/>'
    if setup.tls:
        password = f'keyStorePassword="{setup.tls.password}" trustStorePassword="{setup.tls.password}"'
        store = setup.tls.keystore.as_uri()
        tls = f'<sslContext><sslContext keyStore="{store}" trustStore="{store}" {password}/></sslContext>'
        connector = '<transportConnector name="stomp+ssl" uri="stomp+ssl://127.0.0.1:0"/>'
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
         http://www.springframework.org/schema/beans/spring-beans.xsd
         http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <bean class="org.springframework.context.support.PropertySourcesPlaceholderConfigurer"/>
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="{setup.name}"
          dataDirectory="${{amq.data}}" useJmx="true" advisorySupport="true">
    <managementContext>{_management(setup.jmx_port)}</managementContext>
    <destinationPolicy><policyMap><policyEntries>{entries}</policyEntries></policyMap></destinationPolicy>
    <persistenceAdapter><kahaDB directory="${{amq.data}}/kahadb"/></persistenceAdapter>
    {tls}
    {f"<plugins>{plugins}</plugins>" if plugins else ""}
    <transportConnectors>
      {connector}
      <transportConnector name="openwire" uri="tcp://127.0.0.1:0"/>
    </transportConnectors>
  </broker>
</beans>
"""


def _management(jmx_port: int | None) -> str:
    if jmx_port is None:
        return '<managementContext createConnector="false"/>'
    return f'<managementContext createConnector="true" connectorPort="{jmx_port}"/>'
