"""ElasticMQ, an SQS server, for FIFO queues, dead letters, redrive and high volume."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.services import containers
from tests.services.place import chosen
from tests.services.process import jar_folder, java, running, scratch_folder

_CONFIG = """
include classpath("application.conf")
node-address { protocol = http, host = "127.0.0.1", port = 0, context-path = "" }
rest-sqs { enabled = true, bind-port = 0, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
generate-node-address = true
queues {}
aws { region = us-east-1, accountId = 000000000000 }
"""


@dataclass(frozen=True)
class ElasticMQ:
    """A running ElasticMQ; `client` in `tests.services.sqs` makes boto3 clients for it."""

    endpoint: str
    """The URL for `endpoint_url`."""


@contextmanager
def start() -> Iterator[ElasticMQ]:
    """Run an ElasticMQ without queues while the block runs. Raises `ServiceUnavailable`."""
    if chosen().containers:
        with containers.running(definition(), _endpoint) as endpoint:
            yield ElasticMQ(endpoint)
        return
    jars = jar_folder("elasticmq")
    with scratch_folder("elasticmq") as folder:
        config = folder / "elasticmq.conf"
        config.write_text(_CONFIG)
        command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        command += [f"-Dconfig.file={config}", "org.elasticmq.server.Main"]
        with running(command, folder / "elasticmq.log", _endpoint) as endpoint:
            yield ElasticMQ(endpoint)


def definition() -> containers.Definition:
    """Return ElasticMQ as a container with the local process's configuration."""
    return containers.Definition(
        f"softwaremill/elasticmq-native:{containers.jar_version('elasticmq', 'elasticmq-server_2.13')}",
        (f"-Dconfig.file={containers.FOLDER}/elasticmq.conf",),
        files={"elasticmq.conf": _CONFIG},
        entrypoint=("/opt/docker/bin/elasticmq-native-server",),
    )


def _endpoint(log: str) -> str | None:
    bound = re.search(r"bind address 127\.0\.0\.1:(\d+)", log)
    return f"http://127.0.0.1:{bound[1]}" if bound and "started in" in log else None
