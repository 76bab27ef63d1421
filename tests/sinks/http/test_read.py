"""The read-only API over real HTTP: rows, paging, hostile names, and errors that say what to do."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from alerts.objectives import Objective
from sinks.http import RUNBOOK_PATH, HttpSettings, Page
from sinks.http.responses import takes_gzip
from sinks.native_histograms import PROTOBUF_TYPE
from streaming.core.settings import QueueName, QueueRule, Settings
from streaming.judge.snapshot import AgeScope, Duration, Snapshot
from streaming.judge.views.aggregated_queues import aggregate_views
from tests.sinks.fakes import (
    HOSTILE_NAMES,
    NOW_MS,
    finding,
    many_queues,
    queue_view,
    shop_snapshot,
)
from tests.sinks.http.conftest import Service, StartService
from tests.sinks.metrics_proto import families
from tests.sinks.test_native_histograms import ACCEPT_2_42, took

POISON = "7f3a1c52-90de-4b7b-8a11-3f2f4f0a9c01"
TOOK = Duration((0, 0, 99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0), 61.0)
"""99 messages within a second, one within a minute."""
PRINTABLE_NAMES = [name for name in HOSTILE_NAMES if "\ud800" not in name]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert error["message"]
    assert error["fix"]
    return error


def test_one_row_per_queue_most_urgent_first(shop: Service) -> None:
    """Rows are sorted by critical signals, then warnings, then bad status, then the oldest message."""
    found = shop.client.get("/api/v1/queues").json()
    names = [row["queue"] for row in found["queues"]]
    assert names[:5] == ["invoice-mail", "orders-dlq", "payments.fifo", "orders", "video-transcode"]
    orders = found["queues"][3]
    assert (orders["visible"], orders["in_flight"], orders["receive_count_max"]) == (184, 12, 5)
    assert orders["oldest_age_s"] == {"all": 161.0, "visible": 96.0, "cloudwatch": 54.0, "healthy": 22.0}
    assert orders["signals"] == [
        {"signal": "PoisonMessage", "severity": "warning", "count": 2},
    ]
    assert orders["trend"]["backlog"][-1] == 184
    assert found["summary"]["firing"] == {"critical": 3, "warning": 6}
    assert found["total"] == len(names) == 12


def test_ages_of_a_job_that_is_behind_are_those_when_it_was_judged(start: StartService) -> None:
    """What has not been read yet must not make messages look older, neither in the API nor in `/metrics`."""
    behind = 1_200_000
    shop = start(shop_snapshot())
    late = start(replace(shop_snapshot(), behind_ms=behind), HttpSettings(clock_ms=lambda: NOW_MS + behind))
    for path in ("/api/v1/queue?queue=orders", "/api/v1/signals", "/api/v1/queues/orders/messages"):
        usual, found = (service.client.get(path).json() for service in (shop, late))
        if "summary" in found:
            assert found["summary"].pop("behind_ms") - usual["summary"].pop("behind_ms") == behind
        assert found == usual
    usual_page, page = (service.client.get("/metrics").text.splitlines() for service in (shop, late))
    ages = [line for line in page if line.startswith("queuewatch_oldest_message_age_seconds{")]
    assert ages
    assert set(ages) <= set(usual_page)


def test_unknown_values_are_null_and_not_zero(shop: Service) -> None:
    """A queue without reports has null for its depth."""
    rows = shop.client.get("/api/v1/queues?filter=warehouse").json()["queues"]
    assert (rows[0]["visible"], rows[0]["in_flight"], rows[0]["coverage_ratio"]) == (None, None, None)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("filter=orders", ["orders", "orders-dlq", "ORDERS.EU"]),
        ("filter=ORDERS+amq", ["ORDERS.EU"]),
        ("status=stopped,stale", ["invoice-mail", "warehouse-sync"]),
        ("status=stopped&status=stale&sort=queue", ["invoice-mail", "warehouse-sync"]),
        ("status=critical&sort=queue", ["orders-dlq", "payments.fifo"]),
        ("status=critical,lagging&sort=status", ["orders-dlq", "payments.fifo", "orders"]),
        ("system=cloudflare_queues", ["image-resize"]),
        ("scope=123456789012/us-east-1", ["warehouse-sync"]),
        ("firing=1&sort=receives&limit=2", ["payments.fifo", "orders-dlq"]),
        ("sort=visible&limit=2", ["payments.fifo", "invoice-mail"]),
        ("sort=visible&order=asc&limit=2", ["newsletter", "sms-out"]),
        ("sort=age&limit=1", ["orders-dlq"]),
        ("sort=queue&limit=3&offset=1", ["image-resize", "invoice-mail", "newsletter"]),
        ("filter=nobody", []),
    ],
)
def test_rows_are_filtered_sorted_and_paged(shop: Service, query: str, names: list[str]) -> None:
    """Each parameter works alone and together with others."""
    rows = shop.client.get(f"/api/v1/queues?{query}").json()["queues"]
    found = [row["queue"] for row in rows]
    assert sorted(found) == sorted(names) if query == "filter=orders" else found == names


def test_each_status_lists_as_many_queues_as_the_summary_counts(shop: Service) -> None:
    """`critical` is among them: a queue that flows, with a critical signal."""
    counts = shop.client.get("/api/v1/queues").json()["summary"]["statuses"]
    assert counts["critical"] == 2
    for status, count in counts.items():
        found = shop.client.get(f"/api/v1/queues?status={status}").json()
        assert (found["total"], {row["shown_status"] for row in found["queues"]}) == (count, {status})
    stuck = shop.client.get("/api/v1/queue?queue=payments.fifo").json()["queue"]
    assert (stuck["status"], stuck["shown_status"]) == ("ok", "critical")


def test_a_critical_signal_that_is_folded_into_another_does_not_make_a_queue_critical(start: StartService) -> None:
    """It is not announced by itself, and its row may say OK."""
    about = finding("GroupStuck", "a", "critical", NOW_MS, "Stuck.", group="g")
    client = start(Snapshot(NOW_MS, (queue_view("a"),), (replace(about, folded="QueueFailing"),), {})).client
    found = client.get("/api/v1/queues").json()
    assert (found["summary"]["statuses"], found["queues"][0]["shown_status"]) == ({"ok": 1}, "ok")


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_unknown_values_come_last_in_either_direction(shop: Service, order: str) -> None:
    """An unknown value counts neither as large nor as small."""
    rows = shop.client.get(f"/api/v1/queues?sort=visible&order={order}").json()["queues"]
    assert rows[-1]["queue"] == "warehouse-sync"


@pytest.mark.slow
def test_pages_hold_each_queue_once(start: StartService) -> None:
    """No queue is missing from the pages or on two of them."""
    client = start(many_queues(2_500)).client
    names = [
        row["queue"]
        for offset in range(0, 2_500, 1_000)
        for row in client.get(f"/api/v1/queues?sort=age&offset={offset}&limit=1000").json()["queues"]
    ]
    assert len(names) == len(set(names)) == 2_500


@pytest.mark.parametrize(
    ("query", "message", "fix"),
    [
        ("sort=size", "sort=size", "attention"),
        ("status=broken", "status=broken", "lagging"),
        ("limit=-1", "limit=-1", "a whole number from 0 to 1000"),
        ("limit=٣", "limit=٣", "a whole number from 0 to 1000"),
        ("limit=1001", "limit=1001", "a whole number from 0 to 1000"),
        ("order=up", "order=up", "asc, desc"),
        ("offset=99999999999", "offset=99999999999", "a whole number from 0 to 999999999"),
        ("firing=yes", "firing=yes", "1, true, 0, false"),
    ],
)
def test_a_wrong_parameter_is_refused_with_the_valid_values(shop: Service, query: str, message: str, fix: str) -> None:
    """The response is 400; no default is used silently."""
    answer = shop.client.get(f"/api/v1/queues?{query}")
    assert answer.status_code == 400
    assert message in error_of(answer)["message"]
    assert fix in error_of(answer)["fix"]


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("queues", "filter, status, firing, system, scope, sort, order, offset, limit"),
        ("queue", "queue, system, scope"),
        ("queues/orders/messages", "system, scope, why, offset, limit"),
        ("signals", "signal, severity, system, scope, queue, offset, limit"),
        ("search", "q"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_known_ones(shop: Service, path: str, known: str) -> None:
    """Ignored, a misspelled filter would look as if every queue matched it."""
    answer = shop.client.get(f"/api/v1/{path}?page=2")
    assert answer.status_code == 400
    error = error_of(answer)
    assert (error["code"], error["message"], error["fix"]) == ("unknown_parameter", "there is no parameter page", f"use {known}")


def test_a_wrong_reason_for_listing_messages_is_refused(shop: Service) -> None:
    """An empty list would look as if nothing were wrong with the queue."""
    answer = shop.client.get("/api/v1/queues/orders/messages?why=poisoned")
    assert answer.status_code == 400
    assert error_of(answer)["fix"] == "use poison, held, head, dead_letter, oldest"


def test_suspects_are_listed_with_ids_and_timelines(shop: Service) -> None:
    """The endpoint returns suspect messages with ids, receive counts and attempts, as the contract says."""
    found = shop.client.get("/api/v1/queues/orders/messages?why=poison").json()
    assert (found["queue"], found["unsettled"], found["total"]) == ("orders", 199, 2)
    message = found["messages"][0]
    assert (message["message_id"], message["receive_count"], message["age_s"]) == (POISON, 5, 161.0)
    assert [attempt["receive_count"] for attempt in message["attempts"]] == [1, 2, 3, 4, 5]
    assert shop.client.get("/api/v1/queues/orders/messages?why=head").json()["messages"] == []


def test_a_dead_letter_whose_deliveries_are_not_known_has_no_receive_count(start: StartService) -> None:
    """Not received in the dead-letter queue does not mean never received, and 0 would say so."""
    snapshot = shop_snapshot(NOW_MS)
    (dead,) = (queue for queue in snapshot.queues if queue.queue == "orders-dlq")
    first, second, *_ = dead.messages
    messages = (replace(first, receive_count=0), second, replace(first, message_id="new", receive_count=0, arrived_at_ms=None))
    client = start(replace(snapshot, queues=(replace(dead, messages=messages),))).client
    found = client.get("/api/v1/queues/orders-dlq/messages").json()["messages"]
    assert {one["message_id"]: one["receive_count"] for one in found} == {
        first.message_id: None,
        second.message_id: second.receive_count,
        "new": 0,
    }


@pytest.mark.parametrize("name", PRINTABLE_NAMES)
def test_queues_of_any_name_can_be_requested(hostile: Service, name: str) -> None:
    """Names with slashes, quotes, newlines, `../` or the path of another endpoint are decoded once and taken literally."""
    client = hostile.client
    messages = client.get(f"/api/v1/queues/{quote(name, safe='')}/messages").json()
    detail = client.get("/api/v1/queue", params={"queue": name}).json()
    explained = client.get(f"/api/v1/explain/{quote(name, safe='')}").json()
    assert [m["message_id"] for m in messages["messages"]] == [name]
    assert detail["queue"]["queue"] == name
    assert {subject["kind"] for subject in explained["subjects"]} == {"queue", "message", "group", "consumer"}


def test_a_lone_surrogate_does_not_break_a_response(hostile: Service) -> None:
    """JSON can carry half of a surrogate pair; UTF-8 cannot."""
    client = hostile.client
    for path in ("/api/v1/queues", "/api/v1/signals", "/metrics", "/api/v1/search?q=lone"):
        assert client.get(path).status_code == 200


def test_one_name_in_two_regions_must_be_distinguished(start: StartService) -> None:
    """An ambiguous name gets 409 with the candidates; `?scope=` selects one."""
    twice = (queue_view("orders", scope="eu", tracked=1), queue_view("orders", scope="us", tracked=2))
    client = start(Snapshot(NOW_MS, twice, (), {"accepted": 1})).client
    answer = client.get("/api/v1/queues/orders/messages")
    assert answer.status_code == 409
    assert [c["scope"] for c in error_of(answer)["candidates"]] == ["eu", "us"]
    assert client.get("/api/v1/queues/orders/messages?scope=us").json()["unsettled"] == 2
    assert client.get("/api/v1/queues/orders/messages?scope=asia").status_code == 404


def test_without_a_published_runbook_links_lead_to_the_service_s_own(start: StartService) -> None:
    """Relative to the page, which may be behind a proxy with a path of its own; absolute in text for a terminal."""
    anchor = "#alert-name-queuewatchgroupstuck"
    client = start(shop_snapshot(), HttpSettings(clock_ms=lambda: NOW_MS, pages={RUNBOOK_PATH: Page(b"")})).client
    queue = client.get("/api/v1/queue?queue=payments.fifo").json()["queue"]
    assert [f["runbook_url"] for f in queue["firing"]][:1] == [f"runbook{anchor}"]
    text = client.get("/api/v1/explain/payments.fifo", headers={"Accept": "text/plain"}).text
    assert f"Runbook: {client.base_url}/runbook{anchor}" in text
    without = start(shop_snapshot(), HttpSettings(clock_ms=lambda: NOW_MS)).client
    assert without.get("/api/v1/queue?queue=payments.fifo").json()["queue"]["firing"][0]["runbook_url"] is None


def test_one_queue_in_detail(start: StartService) -> None:
    """The detail response has what the drill-down shows, with the limits that apply to this queue."""
    settings = HttpSettings(
        clock_ms=lambda: NOW_MS,
        judging=Settings(rules=(QueueRule("payments.*", {"held_min_s": 7_200}), QueueRule("*", {"held_min_s": 1}))),
        runbook_base_url="https://run.book",
    )
    queue = start(shop_snapshot(), settings).client.get("/api/v1/queue?queue=payments.fifo").json()["queue"]
    assert queue["sentence"].startswith("Queue payments.fifo is OK as a whole: 2,310 messages visible")
    assert queue["firing"][0]["runbook_url"] == "https://run.book#alert-name-queuewatchgroupstuck"
    assert queue["firing"][0]["to_do"]
    assert queue["top_groups"][0]["group"] == "customer-4711"
    assert {n["signal"]: n["limit"] for n in queue["not_firing"]}["MessageHeldTooLong"] == 7_200
    assert queue["broker"]["look_ahead"] == 120_000


def test_signals_are_listed_with_evidence_and_recently_resolved_ones(start: StartService) -> None:
    """The worst signal comes first, and a signal keeps its id from snapshot to snapshot."""
    service = start(shop_snapshot())
    first = service.client.get("/api/v1/signals?severity=critical").json()
    assert [f["signal"] for f in first["firing"]] == ["DeadLetterExpiring", "QueueStalled", "GroupStuck"]
    assert first["firing"][2]["evidence"]["waiting_behind"] == 247
    assert first["total"] == 3
    later = shop_snapshot(NOW_MS + 1_000)
    service.store.publish(replace(later, firing=tuple(f for f in later.firing if f.key.signal != "GroupStuck")))
    second = service.client.get("/api/v1/signals").json()
    assert [f["id"] for f in second["resolved"]] == [first["firing"][2]["id"]]
    assert {f["id"] for f in first["firing"][:2]} < {f["id"] for f in second["firing"]}


def test_one_signal_by_its_id_says_what_to_do(shop: Service) -> None:
    """Links in alerts lead to this endpoint."""
    client = shop.client
    found = client.get("/api/v1/signals?signal=GroupStuck").json()["firing"][0]
    detail = client.get(f"/api/v1/signals/{found['id']}").json()
    assert detail["meaning"]
    assert detail["to_do"]
    assert client.get("/api/v1/signals/0000").status_code == 404


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("7F3A1C52", {"kind": "message", "name": POISON, "queue": "orders"}),
        ("customer-4711", {"kind": "group", "name": "customer-4711", "queue": "payments.fifo"}),
        ("encoder-7", {"kind": "consumer", "name": "video-encoder-7", "queue": "video-transcode"}),
        ("orders", {"kind": "queue", "name": "orders", "queue": "orders"}),
    ],
)
def test_search_finds_queues_messages_groups_and_consumers(shop: Service, text: str, first: dict[str, str]) -> None:
    """Exact names rank before prefixes and prefixes before substrings, regardless of case."""
    found = shop.client.get("/api/v1/search", params={"q": text}).json()
    assert {name: found["matches"][0][name] for name in first} == first


def test_search_results_are_limited_and_say_the_total(shop: Service, start: StartService) -> None:
    """A single letter matches everything."""
    found = start(many_queues(2_000)).client.get("/api/v1/search?q=t").json()
    assert len(found["matches"]) == 50
    assert found["total"] == 2_000
    assert shop.client.get("/api/v1/search?q=").status_code == 400


def test_explain_answers_in_json_and_in_text(shop: Service) -> None:
    """The command line asks for text; an unknown name gets 404 with a hint."""
    client = shop.client
    assert client.get(f"/api/v1/explain/{POISON}").json()["firing"] is True
    text = client.get("/api/v1/explain/payments.fifo", headers={"Accept": "text/plain"})
    assert text.headers["content-type"].startswith("text/plain")
    assert "FIRING GroupStuck" in text.text
    missing = client.get("/api/v1/explain/ordrs")
    assert missing.status_code == 404
    assert "Similar: orders" in missing.json()["hint"]


def test_at_an_unknown_path_the_service_names_every_path_it_has(start: StartService) -> None:
    """Those of the API, of metrics and health, and the runbook where it is served."""
    reads = ("queues", "queues/{queue}/messages", "queue", "signals", "signals/{id}", "search", "explain/{what}", "stream")
    api = (*reads, "events")
    paths = ["/", "/metrics", "/metrics/native", *(f"/api/v1/{name}" for name in api), "/-/healthy", "/-/ready", "/runbook"]
    client = start(settings=HttpSettings(pages={RUNBOOK_PATH: Page(b"")})).client
    answer = client.get("/api/v2/queues")
    assert answer.status_code == 404
    assert error_of(answer)["fix"] == f"use {', '.join(paths)}"


@pytest.mark.parametrize("path", ["/metrics/", "/api/v1/queues/", "/-/ready/", "/api/v1/queues/orders/messages/"])
def test_a_slash_too_many_is_an_unknown_path(shop: Service, path: str) -> None:
    """A redirect would be to an absolute http URL, without the https and the path of a proxy in front."""
    answer = shop.client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert "location" not in answer.headers


def test_before_the_first_batch_the_api_answers_503(start: StartService) -> None:
    """The response has Retry-After; metrics and page are available all the same."""
    client = start().client
    answer = client.get("/api/v1/queues")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert error_of(answer)["code"] == "starting"
    assert "queuewatch_build_info" in client.get("/metrics").text
    assert client.get("/").status_code == 200


def test_unknown_paths_and_wrong_methods_get_json_errors(shop: Service) -> None:
    """The errors list the existing paths and the allowed methods."""
    client = shop.client
    assert "/api/v1/queues" in error_of(client.get("/nothing"))["fix"]
    wrong = client.delete("/api/v1/queues")
    assert wrong.status_code == 405
    assert "GET" in wrong.headers["allow"]
    assert error_of(wrong)["code"] == "method_not_allowed"


def test_an_unexpected_error_is_json_with_status_500(start: StartService, caplog: pytest.LogCaptureFixture) -> None:
    """When the clock raises, the response is a JSON error and the log has the traceback."""

    def broken() -> int:
        raise RuntimeError("the clock is broken")

    answer = start(shop_snapshot(), HttpSettings(clock_ms=broken)).client.get("/api/v1/queues")
    assert answer.status_code == 500
    assert error_of(answer)["code"] == "internal"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "the clock is broken" in caplog.text


@pytest.mark.parametrize("path", ["/", "/assets/app.js", "/metrics", "/api/v1/queues", "/nothing", "/-/ready"])
def test_every_answer_carries_the_security_headers(shop: Service, path: str) -> None:
    """The headers rule out foreign scripts and content sniffing."""
    headers = shop.client.get(path).headers
    assert "script-src 'self'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


def test_large_responses_are_compressed_if_the_client_accepts_it(start: StartService) -> None:
    """The compressed response holds the same bytes."""
    client = start(many_queues(300)).client
    for path in ("/metrics", "/api/v1/queues"):
        plain = client.get(path, headers={"Accept-Encoding": "identity"})
        with client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
            assert packed.headers["content-encoding"] == "gzip"
            raw = b"".join(packed.iter_raw())
        assert "content-encoding" not in plain.headers
        assert len(raw) < len(plain.content) / 4
        if path != "/metrics":  # process metrics change from scrape to scrape
            assert json.loads(gzip.decompress(raw)) == plain.json()


def test_metrics_are_negotiated(shop: Service) -> None:
    """A client that accepts OpenMetrics gets it; others get the text format."""
    client = shop.client
    text = client.get("/metrics")
    openmetrics = client.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert openmetrics.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert openmetrics.text.endswith("# EOF\n")


def test_a_server_that_prefers_protobuf_keeps_all_classic_series(shop: Service) -> None:
    """Prometheus with native histograms would drop the classic series of a histogram that has both, so /metrics stays text."""
    text = shop.client.get("/metrics", headers={"Accept": ACCEPT_2_42})
    assert text.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_native_histograms_have_a_path_of_their_own(start: StartService) -> None:
    """Compressed or not; before the first batch there is none. A client that takes no protobuf gets an error with a fix."""
    service = start(None)
    client, headers = service.client, {"Accept": ACCEPT_2_42, "Accept-Encoding": "identity"}
    assert client.get("/metrics/native", headers=headers).content == b""
    views = [replace(view, durations={"wait": took({2: 5})}) for view in many_queues(3).queues]
    service.store.publish(Snapshot(NOW_MS, tuple(views), (), {}))
    answer = client.get("/metrics/native", headers=headers)
    assert answer.headers["content-type"] == PROTOBUF_TYPE
    assert "content-encoding" not in answer.headers
    (family,) = families(answer.content)
    assert len(family.metric) == 3
    packed = client.get("/metrics/native", headers=headers | {"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == answer.content
    for accept in ("*/*", "text/plain", "application/openmetrics-text;version=1.0.0,*/*;q=0.1"):
        refused = client.get("/metrics/native", headers={"Accept": accept})
        assert refused.status_code == 406
        assert "--enable-feature=native-histograms" in error_of(refused)["fix"]


def test_unchanged_page_files_are_not_sent_again(shop: Service) -> None:
    """A reload with the file's ETag gets 304 without a body."""
    client = shop.client
    first = client.get("/assets/app.js")
    again = client.get("/assets/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert client.get("/assets/secrets.txt").status_code == 404
    assert client.get("/assets/..%2f__init__.py").status_code == 404


def test_a_queue_has_its_objectives_and_its_dashboard_link(start: StartService) -> None:
    """The detail response has objectives and a dashboard link, escaped for any queue name."""
    objectives = {"orders-30s": Objective(queues="orders|a.*", within_s=30)}
    settings = HttpSettings(clock_ms=lambda: NOW_MS, objectives=objectives, grafana_url="https://grafana.example")
    snapshot = replace(shop_snapshot(), queues=(queue_view("orders", durations={"sojourn": TOOK}), queue_view('a"b&c/d')))
    client = start(snapshot, settings).client
    orders = client.get("/api/v1/queue?queue=orders").json()["queue"]
    assert orders["objectives"] == [
        {"objective": "orders-30s", "of": "sojourn", "within_s": 30, "ratio": 0.99}
        | {"ended": 100, "missed": 1, "in_time_ratio": 0.99, "budget_used_ratio": 1.0}
    ]
    hostile = client.get("/api/v1/queue", params={"queue": 'a"b&c/d'}).json()["queue"]
    assert hostile["objectives"][0]["in_time_ratio"] is None
    assert hostile["dashboard_url"].endswith("var-scope_id=123456789012%2Feu-west-1&var-queue=a%22b%26c%2Fd")
    assert hostile["dashboard_url"].startswith("https://grafana.example/d/queuewatch-queue?var-system=aws_sqs&")


def test_without_objectives_and_grafana_there_are_none(shop: Service) -> None:
    queue = shop.client.get("/api/v1/queue?queue=orders").json()["queue"]
    assert (queue["objectives"], queue["dashboard_url"]) == ([], None)


def test_the_summary_counts_signals_that_belong_to_no_queue(shop: Service) -> None:
    """They are among all that fire, so that the page can say how many of these are on queues."""
    summary = shop.client.get("/api/v1/queues").json()["summary"]
    assert (summary["firing"], summary["firing_without_queue"]) == ({"critical": 3, "warning": 6}, {"warning": 1})


@pytest.mark.parametrize(
    ("counts", "dead_letter_queue", "expected"),
    [
        pytest.param([None, None], True, (None, None, None), id="no queue is counted"),
        pytest.param([None, 3], True, (3, 3, 3), id="the sum of those that are counted"),
        pytest.param([0, 0], True, (0, 0, 0), id="all are empty"),
        pytest.param([None], False, (None, None, 0), id="without a dead-letter queue there are no dead letters"),
        pytest.param([], False, (0, 0, 0), id="no queues"),
    ],
)
def test_the_summary_says_what_is_not_known(
    start: StartService, counts: list[int | None], dead_letter_queue: bool, expected: tuple[int | None, ...]
) -> None:
    """A count that no queue knows is null, as it is in the rows, and not zero."""
    queues = [
        queue_view(f"q-{n}", visible=count, in_flight=count, is_dead_letter_queue=dead_letter_queue)
        for n, count in enumerate(counts)
    ]
    summary = start(Snapshot(NOW_MS, tuple(queues), (), {})).client.get("/api/v1/queues").json()["summary"]
    assert (summary["visible"], summary["in_flight"], summary["dead_letters"]) == expected


OLDEST: dict[AgeScope, int] = {"all": NOW_MS - 60_000}
BOUND: dict[str, Any] = {"visible": 2, "basis": "counts", "exact_ages": frozenset()}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        pytest.param({}, (NOW_MS - 60_000, True), id="every message is known"),
        pytest.param({"basis": "counts"}, (NOW_MS - 60_000, True), id="the other is counted, and empty"),
        pytest.param(BOUND, (NOW_MS - 60_000, False), id="the other's age is not known"),
        pytest.param(BOUND | {"oldest_ms": {"all": NOW_MS - 9_000}}, (NOW_MS - 60_000, False), id="the other may be older"),
        pytest.param(BOUND | {"oldest_ms": {"all": NOW_MS - 99_000}}, (NOW_MS - 99_000, False), id="the other is older"),
        pytest.param(BOUND | {"is_dead_letter_queue": True}, (NOW_MS - 60_000, True), id="dead letters do not count"),
    ],
)
def test_the_summary_says_whether_its_oldest_age_is_exact(
    start: StartService, other: dict[str, Any], expected: tuple[int, bool]
) -> None:
    """It is if no queue can hold an older message; else it is a lower bound."""
    queues = (queue_view("a", visible=1, oldest_ms=OLDEST), queue_view("b", **other))
    summary = start(Snapshot(NOW_MS, queues, (), {})).client.get("/api/v1/queues").json()["summary"]
    assert (summary["oldest_ms"], summary["oldest_is_exact"]) == expected


def test_without_an_oldest_message_the_summary_has_no_exactness(start: StartService) -> None:
    summary = start(Snapshot(NOW_MS, (queue_view("a"),), (), {})).client.get("/api/v1/queues").json()["summary"]
    assert (summary["oldest_ms"], summary["oldest_is_exact"]) == (None, None)


def test_folded_queues_are_one_row_that_links_to_each(start: StartService) -> None:
    """The table stays short; every queue still has its own page and is found by name."""
    tenants = [queue_view(f"orders-{n}", visible=n, status="stalled" if n == 2 else "ok") for n in (1, 2, 3)]
    others = queue_view("mail")
    row = aggregate_views(QueueName("aws_sqs", tenants[0].scope, "orders-*"), tenants, {}, top_k=10)
    about = finding("QueueStalled", "orders-2", "critical", NOW_MS - 1_000, "stalled")
    shop = start(Snapshot(NOW_MS, (others, *tenants), (about,), {}, aggregated_queues=(row,)))

    found = shop.client.get("/api/v1/queues").json()
    assert [(r["queue"], r["folded_queues"], r["worst_queue"]) for r in found["queues"]] == [
        ("orders-*", 3, "orders-2"),
        ("mail", 0, None),
    ]
    assert found["queues"][0] | {"visible": 6, "status": "stalled", "severity": "critical"} == found["queues"][0]
    assert (found["summary"]["queues"], found["summary"]["folded_queues"], found["summary"]["queues_firing"]) == (2, 3, 1)
    assert found["summary"]["queues_alerting"] == 1
    assert found["summary"]["visible"] == 6
    by_member = shop.client.get("/api/v1/queues?filter=orders-3").json()["queues"]
    assert [r["queue"] for r in by_member] == ["orders-*"]

    detail = shop.client.get("/api/v1/queue?queue=orders-*").json()["queue"]
    assert [member["queue"] for member in detail["members"]] == ["orders-2", "orders-1", "orders-3"]
    assert [f["queue"] for f in detail["firing"]] == ["orders-2"]
    assert detail["sentence"].startswith("Queue orders-* (3 queues, the worst of them orders-2) is stalled")
    assert detail["not_firing"] == []
    member = shop.client.get("/api/v1/queue?queue=orders-2").json()["queue"]
    assert (member["visible"], member["members"]) == (2, [])
    text = shop.client.get("/metrics").text
    assert set(re.findall(r'queuewatch_queue_messages\{[^}]*queue="([^"]*)"', text)) == {"orders-*", "mail"}


@pytest.mark.parametrize(
    ("header", "takes"),
    [
        ("gzip, deflate", True),
        ("br;q=1, GZIP; q=0.5", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("*;q=0, gzip", True),
        ("*, gzip;q=0", False),
    ],
)
def test_what_a_client_says_of_gzip_counts_before_what_it_says_of_anything(header: str, takes: bool) -> None:
    assert takes_gzip(header) is takes
