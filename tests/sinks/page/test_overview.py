"""The overview in a real browser: what it shows, how it stays live, and how to navigate it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import Page, Request, expect

from sinks.clock import wall_ms
from streaming.core.settings import QueueName
from streaming.judge.findings.signals import Finding, SignalKey
from streaming.judge.snapshot import Snapshot
from streaming.judge.views.aggregated_queues import aggregate_views
from tests.sinks.fakes import finding, many_queues, queue_view, shop_snapshot
from tests.sinks.page.conftest import Q, StartVisit, Visit


def names(page: Page) -> list[str]:
    return page.locator(".queue-table tbody th a").all_text_contents()


def row(page: Page, queue: str) -> str:
    found = page.get_by_role("row").filter(has=page.get_by_role("link", name=queue, exact=True))
    return " ".join(found.inner_text().split())


def publish_change(visited: Visit, **changes: object) -> Snapshot:
    """Publish the shop again with its first queue changed."""
    snapshot = shop_snapshot(wall_ms())
    changed = replace(snapshot, queues=(replace(snapshot.queues[0], **changes), *snapshot.queues[1:]))  # type: ignore[arg-type]
    visited.store.publish(changed)
    return changed


def test_one_row_per_queue_and_firing_signals_first(visit: StartVisit) -> None:
    """The headline comes first, then the worst signals with their evidence, then the table in the same order."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open()
    expect(page.get_by_role("heading", level=1)).to_have_text("3 critical and 6 warnings, 8 of them on 6 of 12 queues")
    signals = page.get_by_role("list", name="Firing now").get_by_role("listitem")
    expect(signals).to_have_count(6)
    expect(signals.nth(2)).to_contain_text("247 messages wait behind it.")
    expect(signals.nth(2)).to_contain_text("critical")
    assert names(page)[:4] == ["invoice-mail", "orders-dlq", "payments.fifo", "orders"]
    assert re.search(r"Lagging Poison message ×2 [23] min \d", row(page, "orders"))
    assert row(page, "orders").endswith("184 12 5")
    assert row(page, "warehouse-sync").endswith("Stale – – – – –"), "not known is not zero"
    page.get_by_role("button", name="Show all 9 signals").click()
    expect(signals).to_have_count(9)
    assert visited.troubles == []


def test_it_stays_live_without_reload(visit: StartVisit) -> None:
    """A new snapshot appears without a reload, ages tick in between, and the window title shows the worst severity."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open()
    expect(page).to_have_title("3 critical · queuewatch")
    age = page.locator("tbody tr").nth(3).locator('[data-role="age"]')
    before = age.inner_text()
    expect(age).not_to_have_text(before)
    publish_change(visited, visible=4_321)
    expect(page.locator("tbody tr").nth(3)).to_contain_text("4,321")
    visited.store.publish(Snapshot(wall_ms(), (queue_view("calm", wall_ms()),), (), {"accepted": 1}))
    expect(page.get_by_role("heading", level=1)).to_have_text("The queue is fine")
    expect(page).to_have_title("queuewatch")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_text("Recently resolved").click()
    expect(page.locator(".resolved-list li").first).to_be_visible()


def test_a_page_in_the_background_keeps_its_title_and_icon_up_to_date(visit: StartVisit) -> None:
    """It asks for the summary alone, every half minute, and holds no stream; in front again, it shows everything at once."""
    visited = visit(shop_snapshot(wall_ms()), viewport={"width": 1360, "height": 902})  # a page whose clock may be moved
    visited.page.clock.install()
    page = visited.open()
    page.clock.pause_at(page.evaluate("Date.now()") / 1_000 + 1)
    _show_or_hide(page, hidden=True)
    visited.store.publish(Snapshot(wall_ms(), (queue_view("calm", wall_ms()),), (), {"accepted": 1}))
    requests: list[str] = []

    def note(request: Request) -> None:
        requests.append(request.url.removeprefix(visited.server.url))

    page.on("request", note)
    page.clock.run_for(28_000)
    expect(page).to_have_title("3 critical · queuewatch")
    page.clock.run_for(3_000)
    expect(page).to_have_title("queuewatch")
    expect(page.locator("#favicon")).to_have_attribute("href", "assets/favicon.svg")
    page.clock.run_for(60_000)
    assert [url for url in requests if "/api/" in url] == ["/api/v1/queues?limit=0"] * 3
    expect(page.locator("tbody tr")).to_have_count(12)
    _show_or_hide(page, hidden=False)
    page.clock.run_for(2_000)
    expect(page.locator("tbody tr")).to_have_count(1)
    page.remove_listener("request", note)


def _show_or_hide(page: Page, *, hidden: bool) -> None:
    """Tell the page that it is in the background, or in front again: the tests' browser shows every page."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_what_a_queue_turns_out_to_be_is_shown(visit: StartVisit) -> None:
    """That a queue is ordered, takes dead letters, or is known from other events can become known while the page is open."""
    queue = replace(queue_view("a", wall_ms()), basis="partial", basis_reason="no sends", next_step="report sends")
    visited = visit(Snapshot(wall_ms(), (queue,), (), {"accepted": 1}))
    where = visited.open().locator("tbody .cell-where")
    expect(where.locator(".basis")).to_have_attribute("title", "no sends: report sends")
    queue = replace(queue, basis_reason="no deletions", next_step="report deletions", ordered=True)
    visited.store.publish(Snapshot(wall_ms(), (queue,), (), {"accepted": 1}))
    expect(where).to_contain_text("ordered")
    expect(where.locator(".basis")).to_have_attribute("title", "no deletions: report deletions")


def test_numbers_that_no_queue_knows_are_dashes(visit: StartVisit) -> None:
    """Not known is not zero, also among the headline's numbers."""
    queues = (queue_view("a", wall_ms(), visible=None, in_flight=None), queue_view("b", wall_ms(), visible=None, in_flight=4))
    page = visit(Snapshot(wall_ms(), queues, (), {"accepted": 1})).open()
    expect(page.locator('[data-stat="Visible"]')).to_have_text("–")
    expect(page.locator('[data-stat="In flight"]')).to_have_text("4")
    expect(page.locator('[data-stat="Dead letters"]')).to_have_text("0")


def test_the_oldest_age_ends_with_the_last_message(visit: StartVisit) -> None:
    """Once every queue is empty, no age ticks among the headline's numbers."""
    now = wall_ms()
    waiting = queue_view("a", now, visible=3, oldest_ms={"all": now - 60_000, "visible": now - 60_000})
    visited = visit(Snapshot(now, (waiting,), (), {"accepted": 1}))
    oldest = visited.open().locator('[data-stat="Oldest"]')
    expect(oldest).to_contain_text("1 min")
    visited.store.publish(Snapshot(wall_ms(), (replace(waiting, visible=0, oldest_ms={}),), (), {"accepted": 1}))
    expect(oldest).to_have_text("–")
    expect(oldest).not_to_have_attribute("data-since", re.compile(""))


def test_a_line_breaks_only_between_the_parts_of_a_duration(visit: StartVisit) -> None:
    """A number and its unit stay together."""
    now = wall_ms()
    waiting = queue_view("a", now, visible=3, oldest_ms={"all": now - 671_000})
    page = visit(Snapshot(now, (waiting,), (), {"accepted": 1})).open()
    said = page.locator('[data-stat="Oldest"]').evaluate("node => node.textContent")
    assert re.fullmatch("11\u00a0min( \\d+\u00a0s)?", said), said


def test_an_oldest_age_that_is_a_lower_bound_is_marked_as_one(visit: StartVisit) -> None:
    """As in the table. That dead-letter queues are left out is said too."""
    now = wall_ms()
    waiting = queue_view("a", now, visible=3, oldest_ms={"all": now - 60_000})
    visited = visit(Snapshot(now, (replace(waiting, exact_ages=frozenset()),), (), {"accepted": 1}))
    oldest = visited.open().locator('[data-stat="Oldest"]')
    expect(oldest).to_have_attribute("data-least", "≥ ")
    expect(oldest.locator("..")).to_have_attribute("title", "Without dead-letter queues")
    visited.store.publish(Snapshot(wall_ms(), (waiting,), (), {"accepted": 1}))
    expect(oldest).not_to_have_attribute("data-least", re.compile(""))


def test_pausing_freezes_the_page_and_resuming_catches_up(visit: StartVisit) -> None:
    """A paused page stays as it is, so that it can be read."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open()
    pause = page.get_by_role("button", name="Pause")
    pause.click()
    expect(page.get_by_role("button", name="Resume")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#live")).to_contain_text("Paused at")
    before = page.locator(".queue-table").inner_text()
    requests: list[Request] = []

    def note(request: Request) -> None:
        requests.append(request)

    page.on("request", note)
    publish_change(visited, visible=4_321)
    with visited.context.new_page() as beside:
        beside.goto(f"{visited.server.url}/#/")
        expect(beside.locator("tbody tr").nth(3)).to_contain_text("4,321")
        publish_change(visited, visible=5_432)
        expect(beside.locator("tbody tr").nth(3)).to_contain_text("5,432")
    page.remove_listener("request", note)
    assert requests == [], "a page that is not paused was refreshed meanwhile"
    assert page.locator(".queue-table").inner_text() == before
    with page.expect_request("**/api/v1/queues*"):
        page.get_by_role("button", name="Resume").click()
    expect(page.locator("tbody tr").nth(3)).to_contain_text("5,432")


def test_filter_status_and_sort(visit: StartVisit) -> None:
    """Filter, status and sort order combine, and the URL keeps them for a reload or a colleague."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open()
    page.get_by_label("Filter and find").fill("orders")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Firing").click()
    page.get_by_role("columnheader", name="In flight").get_by_role("button").click()
    expect(page.get_by_role("columnheader", name="In flight")).to_have_attribute("aria-sort", "descending")
    assert names(page) == ["ORDERS.EU", "orders", "orders-dlq"]
    page.get_by_role("columnheader", name="In flight").get_by_role("button").click()
    expect(page.locator("tbody tr").first).to_contain_text("orders-dlq")
    assert names(page) == ["orders-dlq", "orders", "ORDERS.EU"]
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(3)
    assert names(page) == ["orders-dlq", "orders", "ORDERS.EU"]
    expect(page.get_by_role("button", name="Firing")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Filter and find")).to_have_value("orders")
    page.get_by_label("Filter and find").fill("no such queue")
    expect(page.get_by_text("No matching queues.")).to_be_visible()


@pytest.mark.parametrize("sort", ["nonsense", "toString", "__proto__"])
def test_an_unknown_sort_order_in_the_address_is_ignored(visit: StartVisit, sort: str) -> None:
    """The queues are shown, by attention, also if the name is one that every object of JavaScript has."""
    page = visit(shop_snapshot(wall_ms())).open(f"#/?sort={sort}")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(page.locator("#sorting")).to_have_value("attention")


def test_critical_queues_have_a_pill_that_lists_them(visit: StartVisit) -> None:
    """A queue that flows, with a critical signal, is Critical in the table, under its pill and on its own page, and not OK."""
    page = visit(shop_snapshot(wall_ms())).open()
    page.get_by_role("button", name=re.compile(r"^Critical ?2$")).click()
    expect(page.locator("tbody tr")).to_have_count(2)
    assert names(page) == ["orders-dlq", "payments.fifo"]
    assert "Critical" in row(page, "payments.fifo")
    page.get_by_role("button", name=re.compile(r"^OK ?\d+$")).click()
    expect(page.locator("tbody tr").first.locator(".status")).to_have_text("OK")
    shown, pill = page.locator("tbody tr .status").all_text_contents(), page.locator(".chip-ok .chip-count")
    assert set(shown) == {"OK"}
    expect(pill).to_have_text(str(len(shown)))
    page.goto(page.url.split("#")[0] + Q + "payments.fifo")
    expect(page.locator(".where .status")).to_have_text("Critical")


def test_a_message_id_leads_to_its_queue(visit: StartVisit) -> None:
    """The search also finds messages, groups and consumers, not only queue names."""
    page = visit(shop_snapshot(wall_ms())).open()
    page.get_by_label("Filter and find").fill("7f3a1c52-90de")
    page.locator(".matches").get_by_role("link", name="7f3a1c52-90de-4b7b-8a11-3f2f4f0a9c01").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page.locator("#wanted")).to_contain_text("7f3a1c52-90de-4b7b-8a11-3f2f4f0a9c01")
    expect(page.locator("#wanted .attempts li").first).to_be_visible()


def test_ten_thousand_queues_are_paged(visit: StartVisit) -> None:
    """The table has fifty rows per page, and any page or queue can be reached quickly."""
    visited = visit(many_queues(10_000, wall_ms()))
    page = visited.open()
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.get_by_text("1–50 of 10,000 queues")).to_be_visible()
    first = names(page)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("51–100 of 10,000 queues")).to_be_visible()
    assert not set(first) & set(names(page))
    page.get_by_role("button", name="Previous").click()
    expect(page.get_by_role("button", name="Previous")).to_be_disabled()
    page.get_by_label("Filter and find").fill("tenant-09876")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.locator("body *").count() < 2_500


def test_the_keyboard_reaches_the_last_of_five_thousand_queues(visit: StartVisit) -> None:
    """The queue is typed, found, opened and left again, and only the rows on screen are in the document."""
    page = visit(many_queues(5_000, wall_ms())).open("#/?sort=queue")
    expect(page.get_by_text("1–50 of 5,000 queues")).to_be_visible()
    page.get_by_label("Filter and find").focus()
    page.keyboard.type("tenant-04999")
    link = page.locator(".queue-table tbody").get_by_role("link")
    expect(link).to_have_text(["tenant-04999-jobs"])
    for _ in range(40):
        page.keyboard.press("Tab")
        if link.evaluate("node => node === document.activeElement"):
            break
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("tenant-04999-jobs")
    page.go_back()
    expect(link).to_be_focused()
    page.get_by_label("Filter and find").fill("")
    following = page.get_by_role("button", name="Next")
    following.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("51–100 of 5,000 queues")).to_be_visible()
    expect(following).to_be_focused()
    expect(page.locator("tbody tr")).to_have_count(50)


def test_a_page_beyond_the_end_shows_the_last_one(visit: StartVisit) -> None:
    """A page number can become too high when queues vanish or the filter gets stricter."""
    page = visit(many_queues(120, wall_ms())).open("#/?page=40")
    expect(page.get_by_text("101–120 of 120 queues")).to_be_visible()


def test_the_page_works_with_the_keyboard_alone(visit: StartVisit) -> None:
    """The keyboard reaches the skip link, a row's link and the queue's heading, and returns to the same row."""
    page = visit(shop_snapshot(wall_ms())).open()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    link = page.locator(".queue-table").get_by_role("link", name="orders", exact=True)
    link.focus()
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("orders")
    expect(heading).to_be_focused()
    page.go_back()
    expect(link).to_be_focused()


def test_skipping_to_the_content_only_moves_the_focus(visit: StartVisit) -> None:
    """The address stays, and with it the filter, or the queue that is shown."""
    visited = visit(shop_snapshot(wall_ms()))
    for address in ("#/?filter=orders", Q + "orders"):
        page = visited.open(address)
        before = page.url
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("main")).to_be_focused()
        assert page.url == before


def test_focus_survives_a_refresh_that_moves_the_row(visit: StartVisit) -> None:
    """When queues appear above a focused row, that row keeps the focus."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open()
    link = page.locator(".queue-table").get_by_role("link", name="search-index")
    link.focus()
    snapshot = shop_snapshot(wall_ms())
    worse = finding("QueueStalled", "search-index", "critical", wall_ms() - 900_000, "Stalled.")
    new = tuple(queue_view(f"new-{i}", wall_ms(), visible=1) for i in range(3))
    visited.store.publish(replace(snapshot, queues=(*snapshot.queues, *new), firing=(worse, *snapshot.firing)))
    expect(page.locator("tbody tr")).to_have_count(15)
    assert names(page).index("search-index") == 3
    expect(link).to_be_focused()


def test_rows_stay_in_place_under_the_pointer(visit: StartVisit) -> None:
    """The order does not change while the pointer is over the table, so that clicks hit; the numbers still update."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open()
    order = names(page)
    page.locator("tbody tr").nth(7).hover()
    snapshot = shop_snapshot(wall_ms())
    calm = tuple(replace(queue, visible=777, status="ok") for queue in snapshot.queues)
    visited.store.publish(replace(snapshot, queues=calm, firing=()))
    expect(page.locator("tbody tr").first).to_contain_text("777")
    assert names(page) == order
    page.mouse.move(5, 5)
    visited.store.publish(replace(snapshot, at_ms=wall_ms(), queues=calm, firing=()))
    expect(page.locator("tbody tr").first).not_to_contain_text(order[0])


def test_a_screen_reader_announces_only_signals_that_began_or_ended(visit: StartVisit) -> None:
    """Numbers change every second and are not announced."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open()
    announce = page.locator("#announce[aria-live=polite]")
    publish_change(visited, visible=4_321)
    expect(page.locator("tbody tr").nth(3)).to_contain_text("4,321")
    expect(announce).to_be_empty()
    snapshot = shop_snapshot(wall_ms())
    new = finding("GroupStuck", "audit.fifo", "critical", wall_ms(), "Stuck.", group="eu")
    visited.store.publish(replace(snapshot, firing=(new, *snapshot.firing[1:])))
    expect(announce).to_have_text("critical: Group stuck on audit.fifo. 1 signal resolved.")
    stale = replace(new, key=SignalKey("TelemetryStale", "", "", "", consumer="sqs"), severity="warning")
    visited.store.publish(replace(snapshot, firing=(new, stale, *snapshot.firing[1:])))
    expect(announce).to_have_text("warning: Telemetry stale.")


def test_of_very_many_signals_only_those_that_began_or_ended_are_announced(visit: StartVisit) -> None:
    """The page gets the first two hundred: a signal that these push out has not ended, and one that moves up is not new."""
    then = wall_ms() - 600_000
    queue = queue_view("orders", then)
    poison = [finding("PoisonMessage", "orders", "warning", then + n, "Poison.", message_id=f"m{n}") for n in range(250)]
    stuck = finding("GroupStuck", "audit.fifo", "critical", wall_ms(), "Stuck.", group="eu")
    visited = visit(Snapshot(wall_ms(), (queue,), tuple(poison), {"accepted": 1}))

    def publish(*firing: Finding) -> None:
        visited.store.publish(Snapshot(wall_ms(), (queue,), firing, {"accepted": 1}))

    announce = visited.open().locator("#announce")
    publish(stuck, *poison)
    expect(announce).to_have_text("critical: Group stuck on audit.fifo.")
    publish(*poison[3:])
    expect(announce).to_have_text("4 signals resolved.")
    publish(*poison[3:-1], replace(poison[-1], severity="critical"))
    expect(announce).to_have_text("critical: Poison message on orders.")
    publish(*poison[200:])
    expect(announce).to_have_text("197 signals resolved.")


def test_of_very_many_resolved_signals_at_least_the_listed_ones_are_announced(visit: StartVisit) -> None:
    """The page gets the last twenty resolved signals: if all are new to it, there may be more."""
    then = wall_ms() - 600_000
    queue = queue_view("orders", then)
    poison = tuple(finding("PoisonMessage", "orders", "warning", then + n, "Poison.", message_id=f"m{n}") for n in range(280))
    visited = visit(Snapshot(wall_ms(), (queue,), poison, {"accepted": 1}))
    announce = visited.open().locator("#announce")
    for left, words in ((261, "19 signals resolved."), (231, "20 or more signals resolved.")):
        visited.store.publish(Snapshot(wall_ms(), (queue,), poison[-left:], {"accepted": 1}))
        expect(announce).to_have_text(words)


def test_the_table_is_a_table_to_assistive_technology(visit: StartVisit) -> None:
    """The roles of a table are kept even on a phone, where rows are drawn as cards."""
    for width in (1360, 390):
        page = visit(shop_snapshot(wall_ms()), viewport={"width": width, "height": 844}).open()
        expect(page.get_by_role("table")).to_have_count(1)
        expect(page.get_by_role("columnheader")).to_have_count(9)
        expect(page.get_by_role("rowheader")).to_have_count(12)
        expect(page.get_by_role("row")).to_have_count(13)
        expect(page.get_by_role("img", name="Visible over 2 min").first).to_be_attached()
        for button in page.get_by_role("button").all():
            assert button.inner_text().strip() or button.get_attribute("aria-label")


def test_an_outage_of_the_service_and_its_return_are_shown(visit: StartVisit) -> None:
    """During an outage the last data stay on the page, with their time."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.open()
    page.route("**/api/v1/**", lambda route: route.abort())
    expect(page.locator("#live")).to_contain_text("Not connected", timeout=15_000)
    expect(page.get_by_role("status")).to_contain_text("The service does not answer")
    expect(page.locator("tbody tr")).to_have_count(12)
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r" of 12 queues at \d\d:\d\d:\d\d UTC$"))
    page.unroute("**/api/v1/**")
    expect(page.locator("#live")).to_contain_text("Live", timeout=15_000)
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r" of 12 queues$"))
    expect(page.locator("#banner")).to_be_hidden()


def test_before_the_first_batch_it_waits(visit: StartVisit) -> None:
    """The page says that it waits, and shows the first batch without a reload."""
    visited = visit(None)
    page = visited.page
    page.goto(visited.server.url)
    expect(page.get_by_role("status")).to_contain_text("Waiting for the first batch")
    visited.store.publish(shop_snapshot(wall_ms()))
    expect(page.locator("tbody tr")).to_have_count(12)
    expect(page.locator("#banner")).to_be_hidden()


def test_stale_data_are_called_stale(visit: StartVisit) -> None:
    """When the job stopped two minutes ago, the page says so."""
    visited = visit(shop_snapshot(wall_ms() - 120_000))
    visited.page.goto(visited.server.url)
    expect(visited.page.get_by_role("status")).to_contain_text("No new batch for 2 min")
    expect(visited.page.locator("#live")).to_contain_text("No new batches")


@pytest.mark.parametrize(
    ("statuses", "headline"),
    [
        (["ok", "ok"], "All 2 queues are fine"),
        (["ok", "unknown", "lagging", "unknown"], "1 of 4 queues are fine, 1 lagging, 2 unknown"),
        (["unknown"], "The queue is unknown"),
    ],
)
def test_only_queues_whose_status_is_ok_are_fine(visit: StartVisit, statuses: list[str], headline: str) -> None:
    """A queue with status unknown fires nothing, but does not count as fine."""
    queues = tuple(queue_view(f"q-{n}", wall_ms(), status=status) for n, status in enumerate(statuses))
    page = visit(Snapshot(wall_ms(), queues, (), {"accepted": 1})).open()
    expect(page.get_by_role("heading", level=1)).to_have_text(headline)


def test_the_headline_counts_only_queues_with_a_critical_signal_or_a_warning(visit: StartVisit) -> None:
    """Signals of severity info are not in it; those of collectors and clocks are, but on no queue."""
    now = wall_ms()
    queues = tuple(queue_view(name, now) for name in ("a", "b", "c"))
    poison = finding("PoisonMessage", "a", "warning", now, "received again and again", message_id="m")
    lint = finding("QueueMisconfigured", "b", "info", now, "no dead-letter queue")
    stale = replace(poison, key=SignalKey("TelemetryStale", "", "", "", consumer="sqs"))
    visited = visit(Snapshot(now, queues, (poison, lint), {"accepted": 1}))
    heading = visited.open().get_by_role("heading", level=1)
    expect(heading).to_have_text("1 warning on 1 of 3 queues")
    visited.store.publish(Snapshot(wall_ms(), queues, (poison, stale, lint), {"accepted": 1}))
    expect(heading).to_have_text("2 warnings, 1 of them on 1 of 3 queues")
    visited.store.publish(Snapshot(wall_ms(), queues, (stale, lint), {"accepted": 1}))
    expect(heading).to_have_text("1 warning, none of them on a queue")
    visited.store.publish(Snapshot(wall_ms(), (), (stale,), {"accepted": 1}))
    expect(heading).to_have_text("No queues yet, but 1 warning")
    visited.store.publish(Snapshot(wall_ms(), (), (), {"accepted": 1}))
    expect(heading).to_have_text("No queues yet")


def test_queues_that_were_fine_before_an_outage_are_not_called_fine_now(visit: StartVisit) -> None:
    """After two minutes without a batch the headline says when the queues were fine."""
    then = wall_ms() - 120_000
    visited = visit(Snapshot(then, (queue_view("a", then), queue_view("b", then)), (), {"accepted": 1}))
    visited.page.goto(visited.server.url)
    heading = visited.page.get_by_role("heading", level=1)
    expect(heading).to_have_text(re.compile(r"^All 2 queues were fine at \d\d:\d\d:\d\d UTC$"))


def test_a_signal_without_a_queue_names_its_collector(visit: StartVisit) -> None:
    """Its card says nothing about a queue or a consumer."""
    page = visit(shop_snapshot(wall_ms())).open()
    card = page.get_by_role("listitem").filter(has_text="Telemetry stale")
    expect(card.locator(".signal-where")).to_have_text("collector sqs-us")


def test_a_link_to_a_queue_opens_it(visit: StartVisit) -> None:
    """A link from an alert opens the queue."""
    page = visit(shop_snapshot(wall_ms())).open(Q + "orders-dlq")
    expect(page.get_by_role("heading", level=1)).to_have_text("orders-dlq")


def test_a_job_that_is_behind_says_which_time_is_shown(visit: StartVisit) -> None:
    """Ages are as of then, and the page does not say that batches are missing. A minute needs no words."""
    then = wall_ms() - 1_200_000
    waiting = queue_view("a", then, tracked=1, visible=1, oldest_ms={"all": then - 30_000, "visible": then - 30_000})
    visited = visit(Snapshot(then, (waiting,), (), {"accepted": 1}, behind_ms=1_200_000))
    page = visited.open()
    expect(page.get_by_role("status")).to_contain_text("20 min ago: the job is behind its source")
    expect(page.locator("#live")).to_contain_text("Live")
    assert "min" not in row(page, "a")
    visited.store.publish(Snapshot(wall_ms() - 50_000, (waiting,), (), {"accepted": 1}, behind_ms=50_000))
    expect(page.locator("#banner")).to_be_hidden()


def test_folded_queues_are_one_row_that_leads_to_each(visit: StartVisit) -> None:
    """The row of folded tenant queues names the worst one, and the row's page lists them all."""
    tenants = [queue_view(f"orders-{n}", wall_ms(), visible=n, status="stalled" if n == 2 else "ok") for n in (1, 2, 3)]
    aggregated = aggregate_views(QueueName("aws_sqs", tenants[0].scope, "orders-*"), tenants, {}, top_k=10)
    visited = visit(
        Snapshot(wall_ms(), (queue_view("mail", wall_ms()), *tenants), (), {"accepted": 1}, aggregated_queues=(aggregated,))
    )
    page = visited.open()
    assert names(page) == ["orders-*", "mail"]
    assert "3 queues, worst: orders-2 Stalled" in row(page, "orders-*")
    page.get_by_role("link", name="orders-*", exact=True).click()
    members = page.locator("#members li")
    expect(members).to_have_count(3)
    expect(members.first).to_have_text("orders-2 Stalled · 2 visible")
    members.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders-2")
    expect(page.locator("#members")).to_be_hidden()
    assert visited.troubles == []
