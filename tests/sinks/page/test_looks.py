"""Light and dark theme, wide and narrow windows, and names that contain markup."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as Tab

import sinks
from alerts.config import AlertRulesConfig
from alerts.runbook import runbook_html
from sinks.clock import wall_ms
from sinks.http import RUNBOOK_PATH, HttpSettings, Page, create_app, serve
from sinks.store import SnapshotStore
from tests.sinks.fakes import HOSTILE_NAMES, hostile_snapshot, shop_snapshot
from tests.sinks.page.conftest import Q, StartVisit

FILES = sorted((Path(sinks.__file__).parent / "page").iterdir())
PHONE = {"width": 360, "height": 740}

CONTRASTS = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest(".unseen, noscript, [hidden], :disabled") || !node.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${node.className || node.tagName} ${ratio.toFixed(2)}: ${node.textContent.slice(0, 40)}`);
  }
  return [...new Set(found)];
}"""


HEADS_OFF = """() => {
  const heads = [...document.querySelectorAll(".queue-table thead th")];
  const cells = [...document.querySelector(".queue-table tbody tr").children];
  const edge = (node, side) => {
    const inner = [node, node.querySelector("button")].filter((one) => one?.tagName === "BUTTON" || one === node);
    const padding = inner.reduce((sum, one) => sum + parseFloat(getComputedStyle(one)[`padding-${side}`]), 0);
    return node.getBoundingClientRect()[side] + (side === "left" ? padding : -padding);
  };
  return heads.map((head, index) => {
    const side = head.classList.contains("number") ? "right" : "left";
    return Math.round(edge(head, side) - edge(cells[index], side));
  });
}"""


def wider_than_the_window(page: Tab) -> int:
    width: int = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    return max(0, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(visit: StartVisit, scheme: str) -> None:
    """The contrast with the background is at least 4.5 to 1 in both themes."""
    visited = visit(shop_snapshot(wall_ms()), color_scheme=scheme)
    for address in ("#/", Q + "orders", Q + "payments.fifo"):
        page = visited.open(address)
        expect(page.locator("td, h2").first).to_be_attached()
        assert page.evaluate(CONTRASTS) == [], address


def test_the_theme_follows_the_system_until_the_user_chooses(visit: StartVisit) -> None:
    """The theme changes at once when the system's does; a choice survives a reload."""
    visited = visit(shop_snapshot(wall_ms()), color_scheme="light")
    page = visited.open()
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(245, 246, 244)"
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(ground) == "rgb(15, 20, 22)"
    page.get_by_role("button", name="Light", exact=True).click()
    assert page.evaluate(ground) == "rgb(245, 246, 244)"
    page.reload()
    assert page.evaluate(ground) == "rgb(245, 246, 244)"
    expect(page.get_by_role("button", name="Dark")).to_be_visible()


def test_a_phone_never_scrolls_sideways(visit: StartVisit) -> None:
    """Numbers, ids and tables fit into 360 pixels."""
    visited = visit(shop_snapshot(wall_ms()), viewport=PHONE)
    for address in ("#/", Q + "orders", Q + "payments.fifo", Q + "orders-dlq"):
        page = visited.open(address)
        expect(page.locator("td, h2").first).to_be_attached()
        assert wider_than_the_window(page) == 0, address


@pytest.mark.parametrize("width", [1000, 1200, 1360])
def test_heads_of_columns_stand_above_their_values(visit: StartVisit, width: int) -> None:
    """On the left above text, on the right above numbers, wherever the cells' padding changes."""
    page = visit(shop_snapshot(wall_ms()), viewport={"width": width, "height": 900}).open()
    assert page.evaluate(HEADS_OFF) == [0] * 9


def test_on_a_phone_rows_are_sorted_by_a_list(visit: StartVisit) -> None:
    """Column heads are hidden on a phone, so a list sorts the rows."""
    page = visit(shop_snapshot(wall_ms()), viewport=PHONE).open()
    page.get_by_label("Sort by").select_option("Most receives")
    expect(page.locator("tbody tr").first).to_contain_text("payments.fifo")


def visible(name: str) -> str:
    """Return a name as the page shows it."""
    unseen = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) in unseen else c for c in name)


@pytest.mark.parametrize("viewport", [{"width": 1360, "height": 900}, PHONE], ids=["wide", "phone"])
def test_hostile_names_stay_text(visit: StartVisit, viewport: dict[str, int]) -> None:
    """Markup is shown as text: it runs nothing, fetches nothing and does not break the layout.

    Characters that reverse what follows, or that cannot be seen, are shown as escapes, and links still lead to the queue.
    """
    visited = visit(hostile_snapshot(wall_ms()), viewport=viewport)
    page = visited.open()
    expect(page.locator("tbody tr")).to_have_count(len(HOSTILE_NAMES))
    shown = page.locator("tbody th a").all_text_contents()
    assert set(shown) == set(map(visible, HOSTILE_NAMES))
    assert "\u202e" not in page.locator("body").inner_text()
    for index, name in enumerate(shown):
        if "\\ud800" in name:
            continue  # an address cannot carry a lone surrogate
        page.locator("tbody th a").nth(index).click()
        expect(page.get_by_role("region", name="Messages to look at")).to_be_visible()
        assert page.locator("h1").text_content() == name
        assert "\u202e" not in page.locator("body").inner_text()
        assert wider_than_the_window(page) == 0
        page.go_back()
        expect(page.locator("tbody tr")).to_have_count(len(HOSTILE_NAMES))
    assert page.locator("img, iframe, object, form").count() == 0
    assert page.evaluate("() => window.hacked") is None
    assert wider_than_the_window(page) == 0
    assert visited.troubles == []


@pytest.mark.parametrize("system", ["\u202eresworb", "constructor", "<b>x</b>"])
def test_a_hostile_system_stays_text(visit: StartVisit, system: str) -> None:
    """It comes with the events, as a queue's name does."""
    snapshot = shop_snapshot(wall_ms())
    page = visit(replace(snapshot, queues=tuple(replace(queue, system=system) for queue in snapshot.queues))).open()
    expect(page.locator(".cell-where").first).to_contain_text(visible(system))
    assert "\u202e" not in page.locator("main").inner_text()
    page.locator("tbody th a").first.click()
    expect(page.locator(".where")).to_contain_text(visible(system))
    assert "\u202e" not in page.locator("main").inner_text()


def test_an_additional_page_may_use_its_own_style_but_no_script(browser: Browser) -> None:
    """The runbook is one file: its hash allows its style element; a script in it does not run."""
    body = b"<style>body{color:rgb(1,2,3)}</style><p style='color:red'>x</p><script>window.hacked=1</script>"
    app = create_app(SnapshotStore(), HttpSettings(pages={"/runbook": Page(body)}))
    with serve(app, port=0) as server:
        tab = browser.new_page()
        tab.goto(f"{server.url}/runbook")
        assert tab.evaluate("() => getComputedStyle(document.querySelector('p')).color") == "rgb(1, 2, 3)"
        assert tab.evaluate("() => window.hacked") is None
        tab.close()


def test_the_runbook_never_scrolls_sideways_on_a_phone(browser: Browser) -> None:
    """Long names of settings and metrics break; commands and tables scroll by themselves."""
    app = create_app(SnapshotStore(), HttpSettings(pages={RUNBOOK_PATH: Page(runbook_html(AlertRulesConfig()).encode())}))
    with serve(app, port=0) as server:
        tab = browser.new_page(viewport={"width": 360, "height": 740})
        tab.goto(f"{server.url}{RUNBOOK_PATH}")
        expect(tab.locator("h2").first).to_be_visible()
        assert wider_than_the_window(tab) == 0
        assert tab.locator("pre").first.evaluate("node => getComputedStyle(node).overflowWrap") == "normal"
        tab.close()


def test_no_file_of_the_page_loads_from_other_hosts_or_parses_text_as_markup() -> None:
    """No file of the page has an address of another host, or uses an API that parses HTML or runs text."""
    for file in FILES:
        text = file.read_text()
        addresses = re.findall(r"https?://[^\s\"']+", text)
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), file.name
        assert "@import" not in text
