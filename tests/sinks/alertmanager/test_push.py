"""Pushing to Alertmanager: the real one with a webhook behind it, and stand-ins.

The stand-ins refuse, hang or ask for a login.
"""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from alerts.config import AlertRulesConfig
from sinks.alertmanager import AlertmanagerConfig, AlertmanagerPush, Destination
from sinks.clock import wall_ms
from streaming.judge.signals import Finding
from streaming.judge.snapshot import Snapshot
from tests.alerts.scrape import listening
from tests.services.process import free_port
from tests.services.prometheus import Server, start_alertmanager
from tests.sinks.fakes import finding, shop_snapshot

Alerts = list[dict[str, Any]]


@dataclass
class StandIn:
    """An Alertmanager that answers as configured and keeps what it was sent."""

    status: Callable[[Alerts], int] = lambda _: 200
    posts: queue.Queue[tuple[str, Alerts]] = field(default_factory=queue.Queue)
    """Authorization header and alerts of every request."""
    hang: threading.Event | None = None
    """It answers only when this is set."""


@contextmanager
def stand_in(behaviour: StandIn, port: int = 0) -> Iterator[str]:
    """Its URL; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            alerts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if behaviour.hang is not None:
                behaviour.hang.wait(20)
            behaviour.posts.put((self.headers.get("Authorization", ""), alerts))
            self.send_response(behaviour.status(alerts))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Silence."""

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


def until(condition: Callable[[], bool], within_s: float = 15) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)


@dataclass
class RealAlertmanager:
    """Debian's, and the notifications its webhook receiver was sent."""

    server: Server
    notifications: queue.Queue[dict[str, Any]]

    def alerts(self) -> Alerts:
        answer: Alerts = httpx.get(f"{self.server.url}/api/v2/alerts").json()
        return answer


@pytest.fixture(scope="module")
def alertmanager(prometheus_servers: None) -> Iterator[RealAlertmanager]:
    """One for the module; every test uses a queue of its own."""
    del prometheus_servers
    notifications: queue.Queue[dict[str, Any]] = queue.Queue()

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            notifications.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Silence."""

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
    """The alerts of the next notification about a queue, None when there is none in time."""
    deadline = time.monotonic() + within_s
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            notification = real.notifications.get(timeout=left_s)
        except queue.Empty:
            return None
        alerts: Alerts = notification["alerts"]
        if alerts[0]["labels"]["queue"] == queue_name:
            return alerts
    return None


def test_a_signal_is_at_the_webhook_within_a_second_and_resolved(alertmanager: RealAlertmanager) -> None:
    """With message, group and what to do; ended when it ends, and nothing in between."""
    with pushing(alertmanager.server.url, keep_firing_s=0.5, resend_s=1) as push:
        began = time.monotonic()
        push.publish(snapshot(stuck()))
        alerts = notified(alertmanager, "q.fifo", 10)
        took_s = time.monotonic() - began
        assert alerts is not None
        assert took_s < 5
        (alert,) = alerts
        assert (alert["status"], alert["labels"]["group"]) == ("firing", "g1")
        assert alert["annotations"]["description"] == "g1 is stuck."
        assert alert["annotations"]["what_to_do"]
        for _ in range(8):
            push.publish(snapshot(replace(stuck(), evidence={"summary": f"now {time.time()}"})))
            time.sleep(0.3)
        assert notified(alertmanager, "q.fifo", 0.2) is None, "new evidence, two resends: nobody is notified again"
        push.publish(snapshot())
        time.sleep(0.6)
        push.publish(snapshot())
        resolved = notified(alertmanager, "q.fifo", 10)
        assert resolved is not None
        assert [a["status"] for a in resolved] == ["resolved"]


def test_each_new_dead_letter_notifies_again(alertmanager: RealAlertmanager) -> None:
    """It is an alert of its own, in the same group."""
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


def test_the_shops_afternoon_is_taken_whole(alertmanager: RealAlertmanager) -> None:
    """Every signal of the catalogue's labels and annotations is acceptable to the real one."""
    with pushing(alertmanager.server.url) as push:
        push.publish(replace(shop_snapshot(wall_ms()), at_ms=wall_ms()))
        until(lambda: len([a for a in alertmanager.alerts() if a["labels"]["queue"] == "orders"]) == 2)
        until(lambda: len(alertmanager.alerts()) >= 9)
        assert [result for (_, result) in posted(push)] == ["ok"]


def test_what_queuewatch_no_longer_sends_ends_by_itself(alertmanager: RealAlertmanager) -> None:
    """It was killed: four resends that do not come end the alert."""
    push = AlertmanagerPush(AlertmanagerConfig(destinations=(Destination(url=alertmanager.server.url),), resend_s=1))
    push.publish(snapshot(finding("QueueStalled", "killed", "critical", wall_ms(), "Stalled.")))
    assert notified(alertmanager, "killed", 10) is not None
    push.close()
    resolved = notified(alertmanager, "killed", 15)
    assert resolved is not None
    assert resolved[0]["status"] == "resolved"


def test_one_that_hangs_holds_up_neither_the_batch_nor_the_others() -> None:
    """Publishing returns at once, the healthy one gets it at once."""
    hanging, healthy = StandIn(hang=threading.Event()), StandIn()
    with stand_in(hanging) as slow, stand_in(healthy) as quick, pushing(slow, quick) as push:
        assert hanging.hang is not None
        started = time.monotonic()
        for number in range(200):
            push.publish(snapshot(stuck(f"g{number}")))
        assert time.monotonic() - started < 2
        until(lambda: healthy.posts.qsize() > 0)
        hanging.hang.set()
        until(lambda: hanging.posts.qsize() > 0)


def test_one_that_is_down_gets_everything_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """Also what ended meanwhile; the log says it once, the metric counts."""
    port = free_port()
    with pushing({"url": f"http://127.0.0.1:{port}", "timeout_s": 1}, keep_firing_s=0) as push:
        push.publish(snapshot(stuck("stays"), stuck("goes")))
        until(lambda: posted(push).get((f"127.0.0.1:{port}", "failed"), 0) >= 2)
        push.publish(snapshot(stuck("stays")))
        assert caplog.text.count("does not accept alerts") == 1
        back = StandIn()
        with stand_in(back, port):
            _, alerts = back.posts.get(timeout=40)
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    over = {alert["labels"]["group"]: alert["endsAt"] <= now + "~" for alert in alerts}
    assert over == {"stays": False, "goes": True}


def test_an_alert_it_does_not_like_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    """Refused together, they are sent one by one; the bad one is counted and not tried for ever."""
    fussy = StandIn(status=lambda alerts: 400 if any(a["labels"]["group"] == "bad" for a in alerts) else 200)
    with stand_in(fussy) as url, pushing(url) as push:
        push.publish(snapshot(stuck("good"), stuck("bad"), stuck("fine")))
        name = url.removeprefix("http://")
        until(lambda: (posted(push).get((name, "ok")), posted(push).get((name, "rejected"))) == (2, 1))
        taken = [a["labels"]["group"] for _, alerts in list(fussy.posts.queue)[1:] for a in alerts]
        assert sorted(taken) == ["bad", "fine", "good"]
        assert "rejects" in caplog.text


@pytest.mark.parametrize("kind", ["basic", "bearer"])
def test_it_logs_in_as_configured_and_reads_a_changed_secret(tmp_path: Path, kind: str) -> None:
    """From a file, which may be renewed while it runs."""
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
            until(lambda: guarded.posts.qsize() >= 1)
            secret.write_text("new\n")
            until(lambda: posted(push).get((url.removeprefix("http://"), "ok"), 0) >= 1)
    assert guarded.posts.queue[0][0] == expected("old")
    assert guarded.posts.queue[-1][0] == expected("new")


def test_a_secret_that_cannot_be_read_fails_at_the_start(tmp_path: Path) -> None:
    """Not by a thread that fails in silence."""
    with pytest.raises(OSError, match="nowhere"):
        AlertmanagerPush(AlertmanagerConfig(destinations=(Destination(url="http://x", token_file=tmp_path / "nowhere"),)))


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"destinations": []}, "at least 1 item"),
        ({"destinations": [{"url": "alertmanager:9093"}]}, "begin it with http:// or https://"),
        ({"destinations": [{"url": "http://a", "username": "me"}]}, "set password_file"),
        ({"destinations": [{"url": "http://a", "password_file": "x"}]}, "a password needs a username"),
        ({"destinations": [{"url": "http://a", "username": "me", "password_file": "x", "token_file": "y"}]}, "choose one"),
        ({"destinations": [{"url": "http://a"}], "resend": 5}, "Extra inputs"),
    ],
)  # fmt: skip
def test_a_wrong_configuration_says_what_to_set(section: dict[str, Any], words: str) -> None:
    """Before anything is started."""
    with pytest.raises(ValidationError, match=words):
        AlertmanagerConfig.model_validate(section)


def test_metrics_say_how_many_fire_and_how_many_are_left_out() -> None:
    """Names of destinations without a login."""
    behaviour = StandIn()
    with stand_in(behaviour) as url:
        secret = url.replace("http://", "http://user:s3cret@")
        with pushing(secret, max_alerts=1) as push:
            push.publish(snapshot(stuck("a"), finding("QueueStalled", "b", "critical", wall_ms(), "Stalled.")))
            until(lambda: behaviour.posts.qsize() > 0)
            families = {family.name: family for family in push.families()}
    states = {labels["state"]: value for labels, value in families["queuewatch_alertmanager_alerts"].samples}
    assert states == {"firing": 1, "unsent": 1}
    assert "s3cret" not in str(families)


def test_rules_name_and_link_the_alerts() -> None:
    """As in the generated rules: routes and inhibitions of either way hold for both."""
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
    """Keeps files in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """One of them."""
        return self.kept.get(name)

    def write(self, name: str, content: bytes) -> None:
        """Replace one."""
        self.kept[name] = content


def test_what_ended_while_alertmanager_and_then_queuewatch_were_away_is_sent_by_the_next_start() -> None:
    """The book outlives the process, and so does what each Alertmanager has been sent."""
    files, there = Files(), StandIn()
    with stand_in(there) as url:
        with pushing(url, keep_firing_s=0) as push:
            push.resume(files)
            push.publish(snapshot(dead_letter(1)))
            until(lambda: there.posts.qsize() > 0)
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


def test_saved_alerts_that_cannot_be_read_are_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    """Damaged, or of a later release: what fires is sent again, which Alertmanager takes for the same."""
    for content in (b"", b"{}", b'{"version": 99}'):
        files, there = Files(), StandIn()
        files.write("book.json", content)
        with stand_in(there) as url, pushing(url) as push:
            push.resume(files)
            push.publish(snapshot(stuck()))
            assert len(there.posts.get(timeout=40)[1]) == 1
    assert caplog.text.count("the saved alerts cannot be read") == 3
