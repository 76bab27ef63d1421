"""Sends alerts to every Alertmanager from a separate thread each, so that a hanging one delays neither batches nor others."""

from __future__ import annotations

import hashlib
import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from alerts.config import AlertRulesConfig
from queuewatch.tls import HTTP_FIX, is_plain_text
from sinks.alertmanager.alert import to_json
from sinks.alertmanager.config import AlertmanagerConfig, Destination
from sinks.alertmanager.ledger import AlertLedger, LedgerEntry
from sinks.alertmanager.ledger_file import LEDGER_FILE, FileStore, from_bytes, to_bytes
from sinks.clock import wall_ms
from sinks.prometheus import Family
from streaming.judge.snapshot import Snapshot

log = logging.getLogger(__name__)

_PER_POST = 200
_FIRST_RETRY_S = 1.0
_LAST_RETRY_S = 30.0
_REJECTED = (400, 413, 422)
_MOST_OF_ANSWER = 300
_LIVES_RESENDS = 4
"""An alert expires after this many missed resends, as with Prometheus."""


class AlertmanagerPush:
    """Pushes each published snapshot; `close` resolves no alert, because the next start continues with them.

    After `resume`, the ledger is saved with every change, so that an Alertmanager that was down gets all changes even if the
    process ends in the meantime.
    """

    def __init__(
        self,
        config: AlertmanagerConfig,
        rules: AlertRulesConfig | None = None,
        *,
        clock_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """Start a thread per destination. `rules` gives names, links, labels and switches.

        Raises `OSError` if a secret's file cannot be read, `ValueError` if its content cannot be sent.
        """
        self._config = config
        self._rules = rules or AlertRulesConfig()
        self._clock_ms = clock_ms
        self._ledger = AlertLedger(config, self._rules)
        self._changed = threading.Condition()
        self._stopping = False
        self._posts: Counter[tuple[str, str]] = Counter()
        self._sent = dict.fromkeys(map(_key, config.destinations), -1)
        """The ledger version that each destination has received."""
        self._resent_ms: dict[str, int] = {}
        """When each destination last received all alerts."""
        self._files: FileStore | None = None
        self._saved = 0
        """The ledger version that was saved last."""
        for destination in config.destinations:
            destination.authorization()  # Fail at the start if a secret's file cannot be read.
        self._threads = [
            threading.Thread(target=self._run, args=(d,), name=f"queuewatch-alertmanager-{number}", daemon=True)
            for number, d in enumerate(config.destinations)
        ]
        for thread in self._threads:
            thread.start()

    def resume(self, files: FileStore) -> None:
        """Continue from the ledger saved by an earlier process, and save it from now on. Call it before the first `publish`."""
        self._files = files
        content = files.read(LEDGER_FILE)
        if content is None:
            return
        try:
            saved = from_bytes(content)
        except ValueError as error:
            log.error("the saved alerts cannot be read: %s; firing alerts are sent again", error)
            return
        with self._changed:
            self._ledger.resume(saved.entries, saved.version)
            self._saved = saved.version
            self._sent |= {name: version for name, version in saved.sent.items() if name in self._sent}
            # What was sent before the restart may be about to expire.
            self._resent_ms.clear()
            self._changed.notify_all()

    def publish(self, snapshot: Snapshot) -> None:
        """Record and save the firing alerts; the threads send them. Raises `OSError` if saving fails; the next call saves."""
        with self._changed:
            self._ledger.update(snapshot.firing, self._clock_ms())
            version = self._ledger.version
            if version == self._saved:
                return
            self._changed.notify_all()
            content = to_bytes(version, self._ledger.since(-1), self._sent)
        if self._files is not None:
            self._files.write(LEDGER_FILE, content)
        self._saved = version

    def families(self) -> Iterable[Family]:
        """Return the push metrics for `/metrics`."""
        with self._changed:
            firing, unsent, posts = self._ledger.count(), self._ledger.unsent, sorted(self._posts.items())
        return (
            Family(
                "queuewatch_alertmanager_posts_total",
                [({"destination": name, "result": result}, number) for (name, result), number in posts],
            ),
            Family(
                "queuewatch_alertmanager_alerts",
                [({"state": "firing"}, firing), ({"state": "unsent"}, unsent)],
            ),
        )

    def close(self, within_s: float = 3.0) -> None:
        """Send pending changes for at most `within_s`, then stop."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(within_s / len(self._threads))

    def _run(self, destination: Destination) -> None:
        name, key = _name(destination), _key(destination)
        wait_s = 0.0
        client: httpx.Client | None = None
        stopping = False
        while not stopping:
            stopping = self._wait(key, wait_s)
            with self._changed:
                now_ms, version = self._clock_ms(), self._ledger.version
                all_of_them = not self._until_resend_s(key)
                entries = self._ledger.since(-1 if all_of_them else self._sent[key])
            try:
                client = client or _client(destination)
                self._post(client, name, entries, now_ms)
            except Exception as error:
                # This thread must survive any error; the next attempt uses a new connection and reads the secret again.
                self._count(name, "failed")
                if not wait_s:
                    why = HTTP_FIX if is_plain_text(error) else repr(error)
                    log.warning("Alertmanager %s does not accept alerts: %s; retrying", name, why)
                wait_s = min(_LAST_RETRY_S, max(_FIRST_RETRY_S, 2 * wait_s))
                if client is not None:
                    client.close()
                client = None
            else:
                if wait_s:
                    log.warning("Alertmanager %s accepts alerts again", name)
                wait_s = 0.0
                with self._changed:
                    self._sent[key] = version
                    if all_of_them and entries:
                        self._resent_ms[key] = now_ms
        if client is not None:
            client.close()

    def _wait(self, key: str, wait_s: float) -> bool:
        """Wait until there is something to send; return whether this is the last time."""
        with self._changed:
            if wait_s:
                self._changed.wait_for(lambda: self._stopping, wait_s)
            else:
                self._changed.wait_for(
                    lambda: self._stopping or self._ledger.version > self._sent[key] or not self._until_resend_s(key),
                    self._until_resend_s(key),
                )
            return self._stopping

    def _until_resend_s(self, key: str) -> float:
        """Return the seconds until all alerts are due again; never more than `resend_s`, wherever the clock was set."""
        resend_s = self._config.resend_s
        if not self._ledger.since(-1):
            return resend_s
        if key not in self._resent_ms:
            return 0.0
        ago_s = (self._clock_ms() - self._resent_ms[key]) / 1000
        return resend_s - ago_s if 0 <= ago_s < resend_s else 0.0

    def _post(self, client: httpx.Client, name: str, entries: Sequence[LedgerEntry], now_ms: int) -> None:
        """Send the entries; raises if a retry may succeed."""
        lives_ms = int(_LIVES_RESENDS * self._config.resend_s * 1000)
        alerts = [
            to_json(entry.alert, self._rules, ends_ms=now_ms + lives_ms if entry.ended_ms is None else entry.ended_ms)
            for entry in entries
        ]
        for first in range(0, len(alerts), _PER_POST):
            self._post_some(client, name, alerts[first : first + _PER_POST])

    def _post_some(self, client: httpx.Client, name: str, alerts: Sequence[dict[str, Any]]) -> None:
        status, said = _posted(client, alerts)
        if status in _REJECTED:
            # One rejected alert must neither block the others nor be retried forever.
            if len(alerts) > 1:
                for alert in alerts:
                    self._post_some(client, name, [alert])
                return
            self._count(name, "rejected")
            log.error("Alertmanager %s rejects %s: %s", name, alerts[0]["labels"], said)
            return
        self._count(name, "ok")

    def _count(self, name: str, result: str) -> None:
        with self._changed:
            self._posts[name, result] += 1


def _posted(client: httpx.Client, alerts: Sequence[dict[str, Any]]) -> tuple[int, str]:
    """Send the alerts; return the status and the beginning of the body. Raises if a retry may succeed.

    The status decides. httpx applies its timeout to each read, so a body that trickles in would hold every later alert.
    """
    with client.stream("POST", "api/v2/alerts", json=alerts) as answer:
        if answer.status_code not in _REJECTED:
            answer.raise_for_status()
        end_s = time.monotonic() + (client.timeout.read or 0.0)
        body = b""
        for part in answer.iter_bytes():
            body += part
            if len(body) >= _MOST_OF_ANSWER or time.monotonic() >= end_s:
                break
    return answer.status_code, body[:_MOST_OF_ANSWER].decode(errors="replace")


def _client(destination: Destination) -> httpx.Client:
    login = destination.authorization()
    return httpx.Client(
        base_url=f"{destination.url}/",
        auth=login if isinstance(login, tuple) else None,
        headers={"Authorization": f"Bearer {login}"} if isinstance(login, str) else None,
        timeout=destination.timeout_s,
        verify=ssl.create_default_context(cafile=str(destination.ca_file)) if destination.ca_file else True,
    )


def _name(destination: Destination) -> str:
    """Return host and port; a URL may contain a password, which must not appear in labels and logs."""
    parts = urlsplit(destination.url)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _key(destination: Destination) -> str:
    """Return a hash that identifies the URL without revealing it."""
    return hashlib.blake2b(destination.url.encode(), digest_size=8).hexdigest()
