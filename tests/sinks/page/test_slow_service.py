"""A service that answers slowly or not at all, in a real browser whose clock the tests move."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

from playwright.sync_api import Page, Route, expect

from sinks.clock import wall_ms
from streaming.judge.snapshot import Snapshot
from tests.sinks.fakes import shop_snapshot
from tests.sinks.page.conftest import Q, StartVisit, Visit

OWN_PAGE = {"viewport": {"width": 1360, "height": 901}}
"""A page whose clock was moved is not used by tests that rely on its clock."""


def shop(at_ms: int, visible: int) -> Snapshot:
    snapshot = shop_snapshot(at_ms)
    return replace(snapshot, queues=tuple(replace(queue, visible=visible) for queue in snapshot.queues))


def opened(visited: Visit, address: str = "#/") -> Page:
    """Open the page, and stop its clock a second later."""
    visited.page.clock.install()
    page = visited.open(address)
    page.clock.pause_at(page.evaluate("Date.now()") / 1_000 + 1)
    return page


def hold(page: Page, paused_ms: int = 2_000) -> list[Route]:
    """Leave the requests for queues unanswered and return them. The first is sent when the page is resumed after `paused_ms`."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        held.append(route)

    page.get_by_role("button", name="Pause").click()
    page.clock.run_for(paused_ms)
    page.route(re.compile("/api/v1/queues?[?]"), keep)
    page.get_by_role("button", name="Resume").click()
    wait_for(page, held, 1)
    return held


def wait_for(page: Page, held: list[Route], count: int) -> None:
    """Wait until the page has sent `count` requests."""
    for _ in range(100):
        if len(held) >= count:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{len(held)} requests")


def test_an_answer_is_awaited_although_new_batches_arrive(visit: StartVisit) -> None:
    """A service that takes seconds to answer is shown, on both pages; one more load follows for what arrived meanwhile."""
    for address, place in (("#/", "tbody"), (Q + "orders", "#numbers")):
        visited = visit(shop(wall_ms(), 111), **OWN_PAGE)
        page = opened(visited, address)
        held = hold(page)
        for _ in range(3):
            visited.store.publish(shop(wall_ms(), 4_321))
            page.clock.run_for(2_000)
        assert len(held) == 1
        held[0].continue_()
        wait_for(page, held, 2)
        expect(page.locator(place)).to_contain_text("4,321")
        expect(page.locator("#live")).to_have_text("Live")


def test_a_sort_order_does_not_wait_for_an_answer(visit: StartVisit) -> None:
    """What the user asks for replaces the load in flight."""
    page = opened(visit(shop_snapshot(wall_ms()), **OWN_PAGE))
    held = hold(page)
    heading = page.get_by_role("columnheader", name="In flight")
    heading.get_by_role("button").click()
    wait_for(page, held, 2)
    assert "sort=in_flight" in held[1].request.url
    held[1].continue_()
    expect(heading).to_have_attribute("aria-sort", "descending")


def test_a_service_that_hangs_does_not_answer(visit: StartVisit) -> None:
    """After ten seconds the banner says so and the headline has its time; as soon as there is an answer, the page is live."""
    page = opened(visit(shop_snapshot(wall_ms()), **OWN_PAGE))
    hold(page)
    page.clock.run_for(9_900)
    expect(page.locator("#live")).to_have_text("Live")
    page.clock.run_for(100)
    expect(page.locator("#live")).to_have_text("Not connected")
    expect(page.get_by_role("status")).to_contain_text("The service does not answer")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r" of 12 queues at \d\d:\d\d:\d\d UTC$"))
    page.unroute_all()
    page.clock.run_for(12_000)
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#banner")).to_be_hidden()


def test_data_of_a_service_that_does_not_answer_have_their_time_and_age(visit: StartVisit) -> None:
    """On the page of a queue, too; there the sentence says for which time it holds. Without data there is no time."""
    at_ms = wall_ms()
    at = f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S} UTC"
    page = opened(visit(shop_snapshot(at_ms), **OWN_PAGE), Q + "orders")
    hold(page)
    page.clock.run_for(10_000)
    banner = page.get_by_role("status")
    expect(banner).to_contain_text(re.compile(rf"retries every few seconds\. The data shown are from {at}, \d\d\ss ago\."))
    expect(page.locator(".sentence").first).to_have_text(re.compile(rf"^At {at}: Queue orders is lagging"))
    page.clock.run_for(60_000)
    expect(banner).to_contain_text(re.compile(r", 1\smin \d+\ss ago"))
    page.evaluate("location.hash = '#/queue?system=aws_sqs&scope=&queue=other'")
    page.clock.run_for(12_000)
    expect(banner).to_have_text("The service does not answer. This page retries every few seconds.")


def test_resuming_during_an_outage_does_not_say_live(visit: StartVisit) -> None:
    """Until there is an answer, the page is as little connected as before the pause."""
    page = opened(visit(shop_snapshot(wall_ms()), **OWN_PAGE))
    hold(page)
    page.clock.run_for(10_000)
    expect(page.locator("#live")).to_have_text("Not connected")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#live")).to_contain_text("Paused at")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#live")).to_have_text("Not connected")
    expect(page.locator("#live")).to_have_attribute("data-state", "lost")


def test_numbers_become_old_while_an_answer_is_awaited(visit: StartVisit) -> None:
    """The rule of half a minute needs no answer, but allows two seconds for one: a page that was paused is behind until then."""
    page = opened(visit(shop_snapshot(wall_ms()), **OWN_PAGE))
    hold(page, paused_ms=40_000)
    page.clock.run_for(1_900)
    expect(page.locator("#live")).to_have_text("Live")
    page.clock.run_for(1_100)
    expect(page.locator("#live")).to_have_text("No new batches")
    expect(page.get_by_role("status")).to_contain_text(re.compile(r"No new batch for 4\d\ss"))
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r" at \d\d:\d\d:\d\d UTC$"))


def test_an_error_without_a_remedy_is_one_sentence(visit: StartVisit) -> None:
    """A proxy in front of the service answers with a page of its own."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.page
    refused = {"status": 502, "content_type": "text/html", "body": "<h1>Bad Gateway</h1>"}
    page.route(re.compile("/api/v1/queues"), lambda route: route.fulfill(**refused))
    page.goto(f"{visited.server.url}/")
    expect(page.get_by_role("status")).to_have_text("The service answered 502.")


def test_an_answer_that_was_cut_off_is_forgotten(visit: StartVisit) -> None:
    """The page is not connected until the next answer, and then it is live: what it announces needs no answer before."""
    visited = visit(shop_snapshot(wall_ms()))
    page = visited.page
    cut = {"status": 200, "content_type": "application/json", "body": '{"firing": ['}
    page.route(re.compile("/api/v1/signals"), lambda route: route.fulfill(**cut), times=1)
    page.goto(f"{visited.server.url}/{Q}orders")
    expect(page.locator("#live")).to_have_text("Not connected")
    expect(page.locator("#live")).to_have_text("Live", timeout=15_000)
    visited.store.publish(shop(wall_ms(), 4_321))
    expect(page.locator("#numbers")).to_contain_text("4,321")
    expect(page.locator("#live")).to_have_text("Live")


def test_numbers_do_not_become_old_while_a_queue_that_is_not_watched_is_not_asked_for(visit: StartVisit) -> None:
    """For ten seconds the page learns of no newer batch, although there are some."""
    visited = visit(shop(wall_ms() - 21_000, 111), **OWN_PAGE)
    page = opened(visited, Q + "gone")
    visited.store.publish(shop(wall_ms(), 4_321))
    page.clock.run_for(8_900)
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#banner")).to_be_hidden()


def test_a_browser_whose_clock_is_set_back_still_shows_new_batches(visit: StartVisit) -> None:
    """Otherwise a page on a wall would say Live, and show nothing new until its clock is where it was."""
    visited = visit(shop(wall_ms(), 111), **OWN_PAGE)
    page = opened(visited)
    page.clock.set_system_time(page.evaluate("Date.now()") / 1_000 - 3_600)
    visited.store.publish(shop(wall_ms(), 4_321))
    page.clock.run_for(6_000)
    expect(page.locator("tbody")).to_contain_text("4,321")
    expect(page.locator("#live")).to_have_text("Live")


def test_a_queue_opened_while_a_filter_is_typed_keeps_its_address(visit: StartVisit) -> None:
    """The filter takes effect a moment after the last key, when another page may be shown."""
    page = opened(visit(shop_snapshot(wall_ms()), **OWN_PAGE))
    page.get_by_role("searchbox").fill("ord")
    page.evaluate(f"location.hash = '{Q}orders'")
    expect(page.locator("h1")).to_have_text("orders")
    page.clock.run_for(1_000)
    assert page.evaluate("location.hash") == f"{Q}orders"
