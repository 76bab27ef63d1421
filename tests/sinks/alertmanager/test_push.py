"""Pushing to Alertmanager: to a real one with a webhook behind it, and to stand-ins.

The stand-ins refuse alerts, hang, or require authentication.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pydantic import ValidationError

from alerts.config import AlertRulesConfig
from sinks.alertmanager import AlertmanagerConfig, AlertmanagerPush, Destination
from sinks.alertmanager.alert import PendingAlert
from sinks.alertmanager.ledger import LedgerEntry
from sinks.alertmanager.ledger_file import from_bytes, to_bytes
from sinks.clock import wall_ms
from streaming.judge.findings.signals import Finding, SignalName
from streaming.judge.snapshot import Snapshot
from tests.alerts.scrape import listening
from tests.services.process import free_port
from tests.services.prometheus import Server, start_alertmanager
from tests.sinks.fakes import NOW_MS, finding, shop_snapshot
from tests.waiting import until

Alerts = list[dict[str, Any]]


@dataclass
class StandIn:
    """An Alertmanager that answers as configured and records the alerts that it receives."""

    status: Callable[[Alerts], int] = lambda _: 200
    posts: queue.Queue[tuple[str, Alerts]] = field(default_factory=queue.Queue)
    """The Authorization header and the alerts of every request."""
    hang: threading.Event | None = None
    """If set, answers wait for this event."""
    trickle: threading.Event | None = None
    """If set, the body of an answer comes byte by byte until this event."""


@contextmanager
def stand_in(behaviour: StandIn, port: int = 0) -> Iterator[str]:
    """Serve `behaviour` and yield its URL; port 0 picks a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            alerts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if behaviour.hang is not None:
                behaviour.hang.wait(20)
            behaviour.posts.put((self.headers.get("Authorization", ""), alerts))
            self.send_response(behaviour.status(alerts))
            self.send_header("Content-Length", "1000000" if behaviour.trickle else "0")
            self.end_headers()
            with suppress(OSError):
                while behaviour.trickle is not None and not behaviour.trickle.wait(0.02):
                    self.wfile.write(b".")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def pushing(*destinations: str | dict[str, Any], **settings: Any) -> Iterator[AlertmanagerPush]:
    listed = [{"url": d} if isinstance(d, str) else d for d in destinations]
    push = AlertmanagerPush(AlertmanagerConfig.model_validate({"destinations": listed, **settings}))
    try:
        yield push
    finally:
        push.close()


def snapshot(*firing: Finding) -> Snapshot:
    return Snapshot(wall_ms(), (), firing, {"accepted": 1})


def stuck(group: str = "g1") -> Finding:
    return finding("GroupStuck", "q.fifo", "critical", wall_ms() - 5_000, f"{group} is stuck.", group=group)


def dead_letter(number: int) -> Finding:
    return finding("DeadLetterArrived", "dlq", "warning", wall_ms(), f"m{number} arrived.", message_id=f"m{number}")


def posted(push: AlertmanagerPush) -> dict[tuple[str, str], float]:
    family = next(f for f in push.families() if f.name == "queuewatch_alertmanager_posts_total")
    return {(labels["destination"], labels["result"]): value for labels, value in family.samples}


@dataclass
class RealAlertmanager:
    """Debian's Alertmanager, and the notifications that its webhook receiver got."""

    server: Server
    notifications: queue.Queue[dict[str, Any]]

    def alerts(self) -> Alerts:
        answer: Alerts = httpx.get(f"{self.server.url}/api/v2/alerts").json()
        return answer


@pytest.fixture(scope="module")
def alertmanager(prometheus_servers: None) -> Iterator[RealAlertmanager]:
    """One Alertmanager for the module; every test uses a queue of its own."""
    del prometheus_servers
    notifications: queue.Queue[dict[str, Any]] = queue.Queue()

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            notifications.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with listening(Webhook) as address:
        receiver = {"name": "hook", "webhook_configs": [{"url": f"http://{address}/", "send_resolved": True}]}
        route = {
            "receiver": "hook",
            "group_by": ["alertname", "system", "scope_id", "queue"],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1h",
        }
        with start_alertmanager({"route": route, "receivers": [receiver]}) as server:
            yield RealAlertmanager(server, notifications)


def notified(real: RealAlertmanager, queue_name: str, within_s: float) -> Alerts | None:
    """Return the alerts of the next notification about a queue, or None if there is none in time."""
    deadline = time.monotonic() + within_s
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            notification = real.notifications.get(timeout=left_s)
        except queue.Empty:
            return None
        alerts: Alerts = notification["alerts"]
        if alerts[0]["labels"].get("queue") == queue_name:
            return alerts
    return None


def test_a_signal_is_at_the_webhook_and_resolved(alertmanager: RealAlertmanager) -> None:
    """The notification names message, group and what to do; the next one says that the alert is resolved."""
    with pushing(alertmanager.server.url, keep_firing_s=0.5, resend_s=1) as push:
        push.publish(snapshot(stuck()))
        alerts = notified(alertmanager, "q.fifo", 10)
        assert alerts is not None
        (alert,) = alerts
        assert (alert["status"], alert["labels"]["group"]) == ("firing", "g1")
        assert alert["annotations"]["description"] == "g1 is stuck."
        assert alert["annotations"]["what_to_do"]
        sent = alertmanager.server.url.removeprefix("http://"), "ok"
        # The webhook may be faster than the answer to the push.
        before = until(lambda: posted(push).get(sent, 0.0), "the push is counted")

        def sent_again() -> bool:
            push.publish(snapshot(replace(stuck(), evidence={"summary": f"now {time.time()}"})))
            return posted(push)[sent] >= before + 2

        until(sent_again, "the alert is sent two more times", every_s=0.1)
        assert notified(alertmanager, "q.fifo", 0.2) is None, "new evidence, two resends: nobody is notified again"

        def resolved() -> Alerts | None:
            push.publish(snapshot())
            return notified(alertmanager, "q.fifo", 0.2)

        assert [a["status"] for a in until(resolved, "the end is notified") or ()] == ["resolved"]


def test_each_new_dead_letter_notifies_again(alertmanager: RealAlertmanager) -> None:
    """Each dead letter is an alert of its own in the same Alertmanager group."""
    with pushing(alertmanager.server.url) as push:
        first, second = dead_letter(1), dead_letter(2)
        push.publish(snapshot(first))
        one = notified(alertmanager, "dlq", 10)
        push.publish(snapshot(first, second))
        two = notified(alertmanager, "dlq", 10)
    assert one is not None
    assert two is not None
    assert {a["labels"]["message_id"] for a in one} == {"m1"}
    assert {a["labels"]["message_id"] for a in two} == {"m1", "m2"}


def test_alertmanager_accepts_every_signal(alertmanager: RealAlertmanager) -> None:
    """A real Alertmanager accepts the labels and annotations of every signal in the catalogue."""
    with pushing(alertmanager.server.url) as push:
        push.publish(replace(shop_snapshot(wall_ms()), at_ms=wall_ms()))
        until(
            lambda: len([a for a in alertmanager.alerts() if a["labels"].get("queue") == "orders"]) == 2,
            "both alerts of orders are there",
        )
        until(lambda: len(alertmanager.alerts()) >= 9, "every alert is there")
        assert [result for (_, result) in posted(push)] == ["ok"]


def test_alerts_end_by_themselves_when_queuewatch_stops_sending(alertmanager: RealAlertmanager) -> None:
    """If queuewatch is killed, Alertmanager resolves its alerts after four missed resends."""
    push = AlertmanagerPush(AlertmanagerConfig(destinations=(Destination(url=alertmanager.server.url),), resend_s=1))
    push.publish(snapshot(finding("QueueStalled", "killed", "critical", wall_ms(), "Stalled.")))
    assert notified(alertmanager, "killed", 10) is not None
    push.close()
    resolved = notified(alertmanager, "killed", 15)
    assert resolved is not None
    assert resolved[0]["status"] == "resolved"


def test_a_hanging_alertmanager_delays_neither_the_batch_nor_the_others() -> None:
    """`publish` returns at once, and the healthy Alertmanager gets the alerts at once."""
    hanging, healthy = StandIn(hang=threading.Event()), StandIn()
    with stand_in(hanging) as slow, stand_in(healthy) as quick, pushing(slow, quick) as push:
        assert hanging.hang is not None
        for number in range(200):
            push.publish(snapshot(stuck(f"g{number}")))
        assert hanging.posts.empty()  # a batch that had waited for it would have ended with its answer
        until(lambda: healthy.posts.qsize() > 0, "the healthy Alertmanager got a post")
        hanging.hang.set()
        until(lambda: hanging.posts.qsize() > 0, "the hanging Alertmanager got a post")


@pytest.mark.parametrize("status", [200, 400], ids=["accepted", "rejected"])
def test_an_answer_that_trickles_in_holds_no_later_alert(status: int) -> None:
    """Its status has come, which is all that matters. Each of its bytes comes in time."""
    done = threading.Event()
    behaviour = StandIn(status=lambda _: status, trickle=done)
    with stand_in(behaviour) as url, pushing({"url": url, "timeout_s": 0.2}) as push:
        for groups in (["g1"], ["g1", "g2"]):
            push.publish(snapshot(*map(stuck, groups)))
            _, alerts = behaviour.posts.get(timeout=10)
            assert groups[-1] in {alert["labels"].get("group") for alert in alerts}
        until(lambda: sum(posted(push).values()) >= 2, "both are counted")
        assert {result for _, result in posted(push)} == {"ok" if status == 200 else "rejected"}
        done.set()


@pytest.mark.slow
def test_an_alertmanager_that_was_down_gets_everything_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """Alerts that ended meanwhile are sent too. The outage is logged once, and the metric counts failed posts."""
    port = free_port()
    with pushing({"url": f"http://127.0.0.1:{port}", "timeout_s": 1}, keep_firing_s=0) as push:
        push.publish(snapshot(stuck("stays"), stuck("goes")))
        until(lambda: posted(push).get((f"127.0.0.1:{port}", "failed"), 0) >= 2, "two posts failed")
        push.publish(snapshot(stuck("stays")))
        assert caplog.text.count("does not accept alerts") == 1
        back = StandIn()
        with stand_in(back, port):
            _, alerts = back.posts.get(timeout=40)
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    over = {alert["labels"]["group"]: alert["endsAt"] <= now + "~" for alert in alerts}
    assert over == {"stays": False, "goes": True}


def test_https_to_an_alertmanager_without_tls_says_what_to_change(caplog: pytest.LogCaptureFixture) -> None:
    """OpenSSL's words name neither the cause nor the remedy."""
    with stand_in(StandIn()) as url, pushing(url.replace("http:", "https:")) as push:
        push.publish(snapshot(stuck("a")))
        until(lambda: "does not accept alerts" in caplog.text, "the failure is logged")
    assert "does not speak TLS: use http:// instead of https://" in caplog.text


def test_a_rejected_alert_does_not_keep_the_others_from_being_sent(caplog: pytest.LogCaptureFixture) -> None:
    """When a post is rejected, its alerts are sent one by one; the bad one is counted and not retried forever."""
    fussy = StandIn(status=lambda alerts: 400 if any(a["labels"]["group"] == "bad" for a in alerts) else 200)
    with stand_in(fussy) as url, pushing(url) as push:
        push.publish(snapshot(stuck("good"), stuck("bad"), stuck("fine")))
        name = url.removeprefix("http://")
        until(
            lambda: (posted(push).get((name, "ok")), posted(push).get((name, "rejected"))) == (2, 1),
            "two alerts are taken and one is rejected",
        )
        taken = [a["labels"]["group"] for _, alerts in list(fussy.posts.queue)[1:] for a in alerts]
        assert sorted(taken) == ["bad", "fine", "good"]
        assert "rejects" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_it_authenticates_as_configured_and_reads_a_changed_secret(tmp_path: Path, kind: str) -> None:
    """The secret is read from a file, which may change while the service runs."""
    secret = tmp_path / "secret"
    secret.write_text("old\n")

    def expected(word: str) -> str:
        return f"Bearer {word}" if kind == "bearer" else "Basic " + base64.b64encode(f"me:{word}".encode()).decode()

    current = ["new"]
    guarded = StandIn()
    guarded.status = lambda _: 200 if list(guarded.posts.queue)[-1][0] == expected(current[0]) else 401
    with stand_in(guarded) as url:
        login: dict[str, Any] = (
            {"token_file": str(secret)} if kind == "bearer" else {"username": "me", "password_file": str(secret)}
        )
        with pushing({"url": url, **login}) as push:
            push.publish(snapshot(stuck()))
            until(lambda: guarded.posts.qsize() >= 1, "it was posted with the old secret")
            secret.write_text("new\n")
            until(lambda: posted(push).get((url.removeprefix("http://"), "ok"), 0) >= 1, "it was posted with the new secret")
    assert guarded.posts.queue[0][0] == expected("old")
    assert guarded.posts.queue[-1][0] == expected("new")


def test_an_unreadable_secret_fails_at_the_start(tmp_path: Path) -> None:
    """The constructor raises, instead of a thread that fails silently later."""
    with pytest.raises(OSError, match="nowhere"):
        AlertmanagerPush(AlertmanagerConfig(destinations=(Destination(url="http://x", token_file=tmp_path / "nowhere"),)))


@pytest.mark.parametrize("content", [b"hush\nhush", "hüsh".encode(), b"\xffhush"])
def test_a_token_that_cannot_be_sent_is_named_but_not_shown(tmp_path: Path, content: bytes) -> None:
    """The error of an HTTP client would quote it in the log."""
    token = tmp_path / "token"
    token.write_bytes(content)
    with pytest.raises(ValueError, match=str(token)) as caught:
        AlertmanagerPush(AlertmanagerConfig(destinations=(Destination(url="http://127.0.0.1:1", token_file=token),)))
    assert "sh" not in str(caught.value).replace(str(token), "")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"destinations": [{"url": "http://a", "token": "hush\nhush"}]}, "the token has characters"),
        ({"destinations": []}, "at least 1 item"),
        ({"destinations": [{"url": "alertmanager:9093"}]}, "begin it with http:// or https://"),
        ({"destinations": [{"url": "http://alertmanager:90930"}]}, "write the host after .*, and a port of 1 to 65535"),
        ({"destinations": [{"url": "http://a", "username": "me"}]}, "set password_file"),
        ({"destinations": [{"url": "http://a", "password_file": "x"}]}, "a password needs a username"),
        ({"destinations": [{"url": "http://a", "username": "me", "password_file": "x", "token_file": "y"}]}, "choose one"),
        ({"destinations": [{"url": "http://a"}], "resend": 5}, "Extra inputs"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_says_what_to_set(section: dict[str, Any], words: str) -> None:
    """Validation fails with a message that says what to set."""
    with pytest.raises(ValidationError, match=words):
        AlertmanagerConfig.model_validate(section)


def test_metrics_say_how_many_fire_and_how_many_are_left_out() -> None:
    """The metrics name destinations without their credentials."""
    behaviour = StandIn()
    with stand_in(behaviour) as url:
        secret = url.replace("http://", "http://user:s3cret@")
        with pushing(secret, max_alerts=1) as push:
            push.publish(snapshot(stuck("a"), finding("QueueStalled", "b", "critical", wall_ms(), "Stalled.")))
            until(lambda: behaviour.posts.qsize() > 0, "it was posted")
            families = {family.name: family for family in push.families()}
    states = {labels["state"]: value for labels, value in families["queuewatch_alertmanager_alerts"].samples}
    assert states == {"firing": 1, "unsent": 1}
    assert "s3cret" not in str(families)


def test_labels_and_links_follow_the_alert_rules_config() -> None:
    """Pushed alerts have the labels of the generated rules, so the same routes and inhibitions apply to both."""
    behaviour = StandIn()
    rules = AlertRulesConfig(job="watcher", labels={"team": "shop"}, page_url="https://watch.example")
    with stand_in(behaviour) as url:
        push = AlertmanagerPush(AlertmanagerConfig(destinations=(Destination(url=url),)), rules)
        push.publish(snapshot(stuck()))
        _, (alert,) = behaviour.posts.get(timeout=10)
        push.close()
    assert (alert["labels"]["job"], alert["labels"]["team"]) == ("watcher", "shop")
    assert alert["generatorURL"].startswith("https://watch.example/#/queue?system=aws_sqs")


class Files:
    """A store that keeps files in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """Return a file's content."""
        return self.kept.get(name)

    def write(self, name: str, content: bytes) -> None:
        """Replace a file."""
        self.kept[name] = content


class FullOnce(Files):
    """A folder whose disk is full at the first write."""

    full = True

    def write(self, name: str, content: bytes) -> None:
        """Replace a file, except the first time."""
        if self.full:
            self.full = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(name, content)


def test_alerts_that_ended_while_alertmanager_and_then_queuewatch_were_down_are_sent_after_the_restart() -> None:
    """The ledger survives the process, and so does the record of what each Alertmanager was sent."""
    files, there = Files(), StandIn()
    with stand_in(there) as url:
        with pushing(url, keep_firing_s=0) as push:
            push.resume(files)
            push.publish(snapshot(dead_letter(1)))
            until(lambda: there.posts.qsize() > 0, "it was posted")
        with pushing("http://127.0.0.1:9", keep_firing_s=0) as push:
            push.resume(files)
            push.publish(snapshot(dead_letter(1), dead_letter(2)))
            push.publish(snapshot(dead_letter(2)))
        there.posts = queue.Queue()
        with pushing(url, keep_firing_s=0) as push:
            push.resume(files)
            _, alerts = there.posts.get(timeout=40)
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    over = {alert["labels"]["message_id"]: alert["endsAt"] <= now + "~" for alert in alerts}
    assert over == {dead_letter(1).key.message_id: True, dead_letter(2).key.message_id: False}


def test_alerts_that_could_not_be_saved_are_saved_when_the_batch_runs_again() -> None:
    """The disk was full for a moment; nothing has changed in the ledger by the second run."""
    disk, finding = FullOnce(), stuck()
    with pushing("http://127.0.0.1:9") as push:
        push.resume(disk)
        with pytest.raises(OSError, match="No space left"):
            push.publish(snapshot(finding))
        assert not disk.kept
        push.publish(snapshot(finding))
        assert [entry.alert.finding for entry in from_bytes(disk.kept["book.json"]).entries] == [finding]
        disk.kept.clear()
        push.publish(snapshot(finding))
        assert not disk.kept, "what is saved already is not saved again"


def test_a_restart_sends_all_alerts_at_once() -> None:
    """What was sent long before the restart expires at Alertmanager soon after it, so it does not wait for the next resend."""
    files, there = Files(), StandIn()
    with stand_in(there) as url:
        with pushing(url) as push:
            push.resume(files)
            for groups in (("g1",), ("g1", "g2"), ("g1", "g2", "g3")):
                push.publish(snapshot(*map(stuck, groups)))
                until(lambda: set(push._sent.values()) == {push._ledger.version}, "it was posted")
        there.posts = queue.Queue()
        with pushing(url) as push:
            until(lambda: set(push._sent.values()) == {0}, "its thread waits: Spark starts for seconds before `resume`")
            push.resume(files)
            _, alerts = there.posts.get(timeout=20)
    assert {alert["labels"]["group"] for alert in alerts} == {"g1", "g2", "g3"}


def test_alerts_are_sent_again_also_when_the_clock_is_set_back() -> None:
    """The clock was a day ahead for a moment; Alertmanager would resolve the alert if nothing was sent until tomorrow."""
    now_ms, there = [wall_ms() + 86_400_000], StandIn()
    with stand_in(there) as url:
        config = AlertmanagerConfig.model_validate({"destinations": [{"url": url}], "resend_s": 1})
        push = AlertmanagerPush(config, clock_ms=lambda: now_ms[0])
        try:
            push.publish(snapshot(stuck()))
            there.posts.get(timeout=20)
            now_ms[0] -= 86_400_000
            there.posts.get(timeout=20)
        finally:
            push.close()


def test_a_saved_alert_for_an_unknown_signal_holds_back_no_other() -> None:
    """After a return to an earlier release, which has no name, severity or runbook for it."""
    unknown = replace(stuck("g2"), key=stuck("g2").key._replace(signal=cast(SignalName, "AddedLater")))
    files, there = Files(), StandIn()
    files.write("book.json", to_bytes(1, [LedgerEntry(PendingAlert(unknown, "warning"), 1, NOW_MS)], {}))
    with stand_in(there) as url, pushing(url) as push:
        push.resume(files)
        push.publish(snapshot(stuck("g1")))
        _, alerts = there.posts.get(timeout=20)
    assert [alert["labels"]["group"] for alert in alerts] == ["g1"]


def test_unreadable_saved_alerts_are_discarded(caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file or one of a later release is ignored: firing alerts are sent again, and Alertmanager deduplicates them."""
    for content in (b"", b"{}", b'{"version": 99}'):
        files, there = Files(), StandIn()
        files.write("book.json", content)
        with stand_in(there) as url, pushing(url) as push:
            push.resume(files)
            push.publish(snapshot(stuck()))
            assert len(there.posts.get(timeout=40)[1]) == 1
    assert caplog.text.count("the saved alerts cannot be read") == 3
