"""The end of the path to a pager: a webhook receiver that records when each notification of Alertmanager arrives."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from tests.alerts.scrape import listening
from tests.services.prometheus import Server, binaries, start_alertmanager

GROUPED_BY = ("alertname", "system", "scope_id", "queue")
"""As in `deploy/alertmanager/alertmanager.yml`."""
TEMPLATES: Final = Path(__file__).parents[2] / "deploy" / "alertmanager" / "templates"
TEXT: Final = '{{ template "queuewatch.text" . }}'


@dataclass(frozen=True, slots=True)
class Notification:
    """One webhook call by Alertmanager."""

    at_s: float
    """When it arrived, in epoch seconds."""
    status: str
    alerts: Sequence[Mapping[str, Any]]
    body: Mapping[str, Any]
    """The whole body, which is also the data of Alertmanager's templates."""

    def firing(self) -> list[Mapping[str, Any]]:
        """Return its firing alerts."""
        return [alert for alert in self.alerts if alert["status"] == "firing"]

    def find(self, alertname: str, **labels: str) -> Mapping[str, Any] | None:
        """Return the first firing alert with these labels."""
        wanted = {"alertname": alertname, **labels}.items()
        return next((alert for alert in self.firing() if wanted <= alert["labels"].items()), None)


class Notifications:
    """All notifications so far, in order. Several threads may wait for theirs."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._all: list[Notification] = []

    def add(self, notification: Notification) -> None:
        """Add a notification."""
        with self._arrived:
            self._all.append(notification)
            self._arrived.notify_all()

    def wait_for(self, position: int, within_s: float) -> Notification | None:
        """Return the notification at `position`, counted from 0, or None if it does not arrive in time."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._all) > position, within_s)
            return self._all[position] if len(self._all) > position else None

    def first(self, alertname: str, within_s: float, **labels: str) -> tuple[Notification, Mapping[str, Any]]:
        """Return the first notification ever in which that alert fires, and the alert. Raises `TimeoutError`."""
        deadline, position = time.monotonic() + within_s, 0
        while notification := self.wait_for(position, max(0.0, deadline - time.monotonic())):
            if alert := notification.find(alertname, **labels):
                return notification, alert
            position += 1
        raise TimeoutError(f"no webhook about {alertname} {labels or ''} within {within_s} s")


def page_text(notification: Notification) -> str:
    """Return the text that the shipped templates make of it."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as data:
        json.dump(notification.body, data)
        data.flush()
        options = [f"--template.glob={TEMPLATES}/*.tmpl", f"--template.text={TEXT}", f"--template.data={data.name}"]
        command = [binaries().amtool, "template", "render", *options]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def paged_alertmanager() -> Iterator[tuple[Server, Notifications]]:
    """Run an Alertmanager that notifies a webhook, with the sample's grouping and waits as short as possible.

    Raises `ServiceUnavailable`.
    """
    notifications = Notifications()

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived_s = time.time()
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            notifications.add(Notification(arrived_s, body["status"], body["alerts"], body))

        def log_message(self, *_: object) -> None:
            """Log nothing, although every webhook is a request."""

    waits = {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
    with listening(Webhook) as webhook:
        receivers = [{"name": "webhook", "webhook_configs": [{"url": f"http://{webhook}/", "send_resolved": True}]}]
        route = {"receiver": "webhook", "group_by": list(GROUPED_BY), **waits}
        with start_alertmanager({"route": route, "receivers": receivers}) as alertmanager:
            yield alertmanager, notifications
