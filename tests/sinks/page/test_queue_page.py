"""The page of one queue, in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace

from playwright.sync_api import Page, expect

from alerts.objectives import Objective
from sinks.clock import wall_ms
from sinks.http import HttpSettings
from streaming.core.state.queues import TOTALS
from streaming.judge.snapshot import Duration, MessageView, QueueView, Snapshot
from tests.sinks.fakes import NOW_MS, finding, queue_view, shop_snapshot
from tests.sinks.page.conftest import Q, StartVisit

POISON = "7f3a1c52-90de-4b7b-8a11-3f2f4f0a9c01"
HEAD = "18849561234907385856"


def part(page: Page, title: str) -> str:
    return " ".join(page.get_by_role("region", name=title, exact=True).inner_text().split())


def test_why_it_fires_and_what_to_do(visit: StartVisit) -> None:
    """Evidence is visible at once; meaning and remedy are one click away."""
    page = visit(shop_snapshot(wall_ms())).open(Q + "orders")
    firing = page.get_by_role("region", name="Firing", exact=True)
    expect(firing.get_by_role("listitem").first).to_contain_text("was received 5 times and never deleted")
    assert "Max receive count 6 Receives left 1 Final attempt no" in part(page, "Firing")
    firing.get_by_text("What it means and what to do").first.click()
    expect(firing).to_contain_text("delivered again and again but never finished")
    expect(page.get_by_role("region", name="Not firing")).to_contain_text("the longest hold is")


def test_the_remedy_follows_the_reason(visit: StartVisit) -> None:
    """A group whose head was held, and now fails again and again, needs other steps; what was opened stays open."""

    def stuck(reason: str) -> Snapshot:
        now = wall_ms()
        firing = finding("GroupStuck", "a.fifo", "critical", now, "Stuck.", group="g", reason=reason)
        return Snapshot(now, (queue_view("a.fifo", now),), (firing,), {"accepted": 1})

    visited = visit(stuck("held_head"))
    page = visited.open(Q + "a.fifo")
    page.get_by_text("What it means and what to do").click()
    steps = page.locator(".to-do li")
    expect(steps.first).to_contain_text("Restart the worker that holds the head")
    visited.store.publish(stuck("poison_head"))
    expect(steps.first).to_contain_text("Repair or skip the head")
    expect(steps.first).to_be_visible()


def test_the_hint_on_what_a_queue_is_known_from_follows_its_reason(visit: StartVisit) -> None:
    """After the next step was done, the tooltip names the one that is left."""
    queue = replace(queue_view("a", wall_ms()), basis="partial", basis_reason="no sends", next_step="report sends")
    visited = visit(Snapshot(wall_ms(), (queue,), (), {"accepted": 1}))
    fact = visited.open(Q + "a").locator("#numbers [data-key='Known from']")
    expect(fact).to_have_attribute("title", "no sends: report sends")
    changed = replace(queue, basis_reason="no deletions", next_step="report deletions")
    visited.store.publish(Snapshot(wall_ms(), (changed,), (), {"accepted": 1}))
    expect(fact).to_have_attribute("title", "no deletions: report deletions")


def test_what_a_queue_turns_out_to_be_is_shown(visit: StartVisit) -> None:
    """An open page says that its queue takes dead letters as soon as that is known."""
    queue = queue_view("a", wall_ms())
    visited = visit(Snapshot(wall_ms(), (queue,), (), {"accepted": 1}))
    page = visited.open(Q + "a")
    expect(page.locator(".where")).not_to_contain_text("dead-letter queue")
    visited.store.publish(Snapshot(wall_ms(), (replace(queue, is_dead_letter_queue=True),), (), {"accepted": 1}))
    expect(page.locator(".where")).to_contain_text("dead-letter queue")


def test_the_charts_of_a_quiet_queue_end_now(visit: StartVisit) -> None:
    """The time below a chart moves on while its values stay the same."""
    start = NOW_MS - 1_000_000
    quiet = queue_view("a", start, visible=0, oldest_ms={})
    visited = visit(clock_ms=lambda: NOW_MS)
    for step in range(100):
        visited.store.publish(Snapshot(start + step * 10_000, (quiet,), (), {"accepted": 1}))
    ends = visited.open(Q + "a").locator(".chart-axis span:last-child").first
    before = ends.inner_text()
    visited.store.publish(Snapshot(NOW_MS, (quiet,), (), {"accepted": 1}))
    expect(ends).not_to_have_text(before)


def test_a_chart_of_one_point_has_a_dot(visit: StartVisit) -> None:
    """A line from a point to itself draws nothing. The dot is at the last point; where that is not known, there is none."""
    visited = visit(clock_ms=lambda: NOW_MS)
    queue = queue_view("a", NOW_MS, visible=3, oldest_ms={"all": NOW_MS - 60_000})
    visited.store.publish(Snapshot(NOW_MS, (queue,), (), {"accepted": 1}))
    page = visited.open(Q + "a")
    dots = page.locator(".chart .chart-dot")
    expect(dots).to_have_count(2)
    expect(dots.first).to_have_attribute("d", re.compile(r"^M600 0\.0h"))
    visited.store.publish(Snapshot(NOW_MS + 10_000, (replace(queue, visible=None, oldest_ms={}),), (), {"accepted": 1}))
    expect(dots).to_have_count(0)
    expect(page.locator(".chart .chart-line").first).to_have_attribute("d", re.compile(r"^M[^L]*h0\.1$"))


def test_evidence_is_in_words_and_a_broker_s_own_reason_stays_as_it_is(visit: StartVisit) -> None:
    """`held_head` is a value for programs."""
    now = wall_ms()
    stuck = finding("GroupStuck", "a.fifo", "critical", now, "Stuck.", group="held_head")
    stuck = replace(stuck, evidence={**stuck.evidence, "reason": "held_head"})
    failed = finding("RedriveFailed", "a.fifo", "warning", now, "Failed.")
    states = {"head_state": "in_flight", "state": "in_flight"}
    failed = replace(failed, evidence={**failed.evidence, "reason": "constructor", **states})
    page = visit(Snapshot(now, (queue_view("a.fifo", now),), (stuck, failed), {"accepted": 1})).open(Q + "a.fifo")
    said = part(page, "Firing")
    assert "Group held_head Reason a consumer holds its head" in said
    assert "Reason constructor Head state in flight State in flight" in said


def test_units_follow_the_name_of_a_key(visit: StartVisit) -> None:
    """A rate is no duration, a time is no number, and a map without entries is not left blank."""
    evidence = {"rate_in_per_s": 1.9, "time_left_s": 90, "failing_since": NOW_MS - 60_000, "invisible_until": NOW_MS}
    lagging = replace(finding("QueueLagging", "a.fifo", "warning", NOW_MS, "Lags."), evidence=evidence)
    queue = replace(queue_view("a.fifo", NOW_MS), broker={"visibility_timeout_s": 30, "tags": {}})
    page = visit(Snapshot(NOW_MS, (queue,), (lagging,), {"accepted": 1}), clock_ms=lambda: NOW_MS).open(Q + "a.fifo")
    said = part(page, "Firing")
    assert "Rate in 1.9 /s Time left 1 min 30 s" in said
    assert re.search(r"Failing since \S*\d\d:\d\d:\d\d .* Invisible until \S*\d\d:\d\d:\d\d ", said), said
    assert "Visibility timeout 30 s Tags none" in " ".join(page.locator("main").inner_text().split())


def test_suspects_with_ids_receive_counts_and_timeline(visit: StartVisit) -> None:
    """Five receives are drawn as five bars, and listed as five lines for screen readers."""
    page = visit(shop_snapshot(wall_ms())).open(Q + "orders")
    message = page.locator(".message").filter(has_text=POISON)
    expect(message).to_contain_text("orders-worker-2")
    expect(message.locator(".timeline rect")).to_have_count(5)
    expect(message.get_by_role("img", name="5 receives shown")).to_be_visible()
    message.get_by_text("5 receives, one by one").click()
    expect(message.locator(".attempts li")).to_have_count(5)
    expect(message.locator(".attempts li").last).to_contain_text("Receive 5 by orders-worker-2, invisible for 30 s")


def test_the_timeline_uses_the_clock_of_the_service(visit: StartVisit) -> None:
    """A browser whose clock is a year off draws the same bars."""
    page = visit(shop_snapshot(NOW_MS), clock_ms=lambda: NOW_MS).open(Q + "orders")
    bars = page.locator(".message").filter(has_text=POISON).locator(".timeline rect")
    expect(bars).to_have_count(5)
    widths = [float(bar.get_attribute("width") or 0) for bar in bars.all()]
    assert min(widths) > 100, "of a thousand"


def test_opened_details_stay_open_over_a_refresh(visit: StartVisit) -> None:
    """The next snapshot does not close what the user has opened."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open(Q + "orders")
    message = page.locator(".message").filter(has_text=POISON)
    message.get_by_text("5 receives, one by one").click()
    snapshot = shop_snapshot(wall_ms())
    visited.store.publish(replace(snapshot, queues=(replace(snapshot.queues[0], visible=4_321), *snapshot.queues[1:])))
    expect(page.get_by_role("region", name="Now")).to_contain_text("4,321")
    expect(message.locator(".attempts li").first).to_be_visible()


def test_a_queue_that_is_not_watched_any_more(visit: StartVisit) -> None:
    """The page says so without sections, leads to similar names, and asks again, but not at every snapshot."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open(Q + "search-index")
    snapshot = shop_snapshot(wall_ms())
    left = replace(snapshot, queues=tuple(queue for queue in snapshot.queues if queue.queue != "search-index"))
    visited.store.publish(left)
    gone = page.locator(".queue-head")
    expect(gone).to_contain_text("Queue search-index is not being watched.")
    expect(page.get_by_role("heading")).to_have_text(["search-index"])
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#banner")).to_be_hidden()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for _ in range(4):
        visited.store.publish(replace(left, at_ms=wall_ms()))
        page.wait_for_timeout(1_000)
    assert requests == []
    visited.store.publish(shop_snapshot(wall_ms()))
    expect(page.get_by_role("region", name="Now")).to_be_visible(timeout=15_000)
    expect(gone).not_to_contain_text("not watched")
    page.goto(page.url.replace("search-index", "index"))
    page.get_by_role("link", name="Look for it among all queues").click()
    expect(page.locator("tbody tr th a")).to_have_text(["search-index"])


def test_groups_with_head_and_depth(visit: StartVisit) -> None:
    """The stuck group comes first, with its head's id and its depth; the number of folded groups is shown."""
    page = visit(shop_snapshot(wall_ms())).open(Q + "payments.fifo")
    groups = part(page, "Groups")
    assert "customer-4711 Stuck 248 0 6 min 5" in groups
    assert f"{HEAD} 11" in groups
    assert groups.endswith("214 backlog, 38 in flight, 1 blocked · and 204 more groups")


def test_times_of_groups_and_totals_say_what_they_are(visit: StartVisit) -> None:
    """A time since is one ago, and a total with an unusual name has a label that says what it counts."""
    now = wall_ms()
    snapshot = shop_snapshot(now)
    (payments,) = (queue for queue in snapshot.queues if queue.queue == "payments.fifo")
    first, second = payments.top_groups[:2]
    groups = (replace(first, last_settled_at_ms=now - 300_000), replace(second, last_settled_at_ms=None))
    payments = replace(payments, top_groups=groups, totals={"sent": 9, "touched": 4, "touched_unsent": 3, "processed": 2})
    page = visit(replace(snapshot, queues=(payments,))).open(Q + "payments.fifo")
    settled = page.get_by_role("region", name="Groups").locator('td[data-label="Last finished"]')
    expect(settled).to_have_text([re.compile(r"^5\smin( \d+\ss)? ago$"), "–"])
    labels = ["Sent", "Messages with a delivery or end", "… without a reported send", "Deleted, processing time known"]
    expect(page.locator("#totals dt")).to_have_text(labels)


def test_every_total_has_a_label_of_its_own(visit: StartVisit) -> None:
    """Two totals must not look the same."""
    queue = replace(queue_view("a", NOW_MS), totals=dict.fromkeys(TOTALS, 1))
    page = visit(Snapshot(NOW_MS, (queue,), (), {"accepted": 1}), clock_ms=lambda: NOW_MS).open(Q + "a")
    labels = page.locator("#totals dt").all_inner_texts()
    assert len(set(labels)) == len(labels) == len(TOTALS)
    assert not set(labels) & {"Touched", "Touched unsent", "Processed", "Arrived", "Reconciled", "Found later", "Outlived"}


def test_consumers_with_what_they_hold(visit: StartVisit) -> None:
    """Example: an ActiveMQ consumer that holds 230 messages with a prefetch of 1,000."""
    page = visit(shop_snapshot(wall_ms())).open("#/queue?system=activemq&scope=amq-prod-1&queue=ORDERS.EU")
    consumers = part(page, "Consumers")
    assert "ID:app-3-4711:1:1 230 4" in consumers
    assert "1,000 yes" in consumers


def test_dead_letters_with_time_left(visit: StartVisit) -> None:
    """Each dead letter shows when it arrived, whether that is inferred, and when it expires."""
    page = visit(shop_snapshot(wall_ms())).open(Q + "orders-dlq")
    first = page.locator(".message").first
    expect(first).to_contain_text("Expires in2 h 29 min")
    expect(page.locator(".message").nth(2)).to_contain_text("inferred")
    expect(page.get_by_role("region", name="Now")).to_contain_text("First expires in2 h 29 min")


def test_a_dead_letter_shows_its_receives_only_where_they_are_known(visit: StartVisit) -> None:
    """Not received in the dead-letter queue does not mean never received."""
    snapshot = shop_snapshot(wall_ms())
    queues = [q if q.queue != "orders-dlq" else replace(q, messages=_first_not_received(q)) for q in snapshot.queues]
    page = visit(replace(snapshot, queues=tuple(queues))).open(Q + "orders-dlq")
    facts = page.locator(".message .facts")
    expect(facts.nth(1)).to_contain_text("Receives6")
    expect(facts.nth(0)).not_to_contain_text("Receives")


def test_a_message_whose_deletion_was_refused_says_so(visit: StartVisit) -> None:
    """Its work was done, so it is no usual poison message; the others say nothing about it."""
    snapshot = shop_snapshot(wall_ms())
    first, *others = snapshot.queues[0].messages
    orders = replace(snapshot.queues[0], messages=(replace(first, refused_settlements=2), *others))
    page = visit(replace(snapshot, queues=(orders, *snapshot.queues[1:]))).open(Q + "orders")
    facts = page.locator(".message .facts")
    expect(facts.nth(0)).to_contain_text("Deletions refused2 times, too late")
    expect(facts.nth(1)).not_to_contain_text("Deletions refused")


def _first_not_received(queue: QueueView) -> tuple[MessageView, ...]:
    first, *others = queue.messages
    return replace(first, receive_count=0), *others


def test_the_four_ages_stand_side_by_side(visit: StartVisit) -> None:
    """CloudWatch's age stands beside the true ages."""
    page = visit(shop_snapshot(wall_ms())).open(Q + "orders")
    now = part(page, "Now")
    positions = [now.index(label) for label in ("Oldest 2 min", "Oldest visible 1 min", "Oldest healthy", "CloudWatch's age")]
    assert positions == sorted(positions)


def test_an_id_can_be_copied(visit: StartVisit) -> None:
    """The button confirms the copy."""
    visited = visit(shop_snapshot(wall_ms()))
    visited.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visited.open(Q + "orders")
    message = page.locator(".message").filter(has_text=POISON)
    message.get_by_role("button", name="Copy id").click()
    expect(message.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("() => navigator.clipboard.readText()") == POISON


def test_settings_are_readable_and_times_are_utc(visit: StartVisit) -> None:
    """Lists and tables are written out. Times use the 24-hour clock and UTC, as logs and `explain` do, wherever the reader is."""
    snapshot = shop_snapshot(wall_ms())
    reported = {"dead_letter_sources": ["orders", "refunds"], "redrive_task": {"status": "RUNNING", "moved": 1_200}}
    orders = replace(snapshot.queues[0], broker={**snapshot.queues[0].broker, **reported})
    page = visit(replace(snapshot, queues=(orders, *snapshot.queues[1:])), timezone_id="Asia/Kolkata").open(Q + "orders")
    text = " ".join(page.locator("body").inner_text().split())
    assert "Dead letter sources orders, refunds" in text
    assert "status: RUNNING, moved: 1,200" in text
    assert not re.search(r"\b[AP]M\b", text)
    times = re.findall(r"\b(\d\d:\d\d):\d\d (UTC|\S+)", text)
    assert times
    assert {zone for _, zone in times} == {"UTC"}


def test_an_id_fits_on_one_line_on_a_phone(visit: StartVisit) -> None:
    """A list of suspects stays readable at a glance."""
    page = visit(shop_snapshot(wall_ms()), viewport={"width": 390, "height": 844}).open(Q + "orders")
    box = page.locator(".message-id").first.bounding_box()
    assert box is not None
    assert box["height"] < 30


def test_objectives_show_their_period(visit: StartVisit) -> None:
    """The section shows met and missed objectives, says that they do not cover 28 days, and links to Grafana for that."""
    took = Duration((0, 0, 0, 0, 0, 1_194, 0, 7, 0, 0, 0, 0, 3), 9_000.0)
    snapshot = shop_snapshot(wall_ms())
    orders = replace(snapshot.queues[0], durations={"sojourn": took}, totals={"dead_lettered": 2})
    assert orders.queue == "orders"
    settings = HttpSettings(
        objectives={
            "orders-30s": Objective(queues="orders", within_s=30),
            "orders-5min": Objective(queues="orders", within_s=300, ratio=0.9999, of="wait"),
        },
        grafana_url="https://grafana.example",
    )
    visited = visit(replace(snapshot, queues=(orders, *snapshot.queues[1:])), settings=settings)
    page = visited.open(Q + "orders")
    said = part(page, "Objectives")
    assert "orders-30s 99% settled within 30 s of being sent: 99% were, 12 of 1,206 messages late or lost, " in said
    assert "99.5% of the misses allowed." in said
    assert "orders-5min 99.99% first received within 5 min of being sent: 0% were, 2 of 2 messages" in said
    assert "Since counting began, not of the last 28 days: that budget is in Grafana." in said
    link = page.get_by_role("region", name="Objectives", exact=True).get_by_role("link", name="Grafana")
    assert str(link.get_attribute("href")).endswith("&var-queue=orders&from=now-28d&to=now")
    assert "Only messages that are reported" not in said
    page = visited.open(Q + "payments.fifo")
    expect(page.get_by_role("heading", name="Objectives")).to_be_hidden()
    assert visited.troubles == []


def test_objectives_of_a_partially_reported_queue_say_so(visit: StartVisit) -> None:
    """If only half of the messages are reported, all reported ones may be in time."""
    snapshot = shop_snapshot(wall_ms())
    orders = replace(snapshot.queues[0], basis="partial", durations={"sojourn": Duration((9, *[0] * 12), 9.0)})
    settings = HttpSettings(objectives={"orders-30s": Objective(queues="orders", within_s=30)})
    visited = visit(replace(snapshot, queues=(orders, *snapshot.queues[1:])), settings=settings)
    said = part(visited.open(Q + "orders"), "Objectives")
    assert "Only reported messages are counted; some are not reported. Since counting began" in said
