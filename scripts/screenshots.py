"""Take the screenshots of the status page for the README: `python scripts/screenshots.py` from the checkout.

The test fixture, a shop with several problems, is served on a free port and opened in the installed Chromium. The clock is
fixed, so that the images change only when the page does. With the font Inter installed they look as in the repository; other
fonts work too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright  # noqa: E402 -- the checkout's path comes first

from sinks.http import HttpSettings, create_app, serve  # noqa: E402
from sinks.store import SnapshotStore  # noqa: E402
from tests.services.browser import find_chromium  # noqa: E402
from tests.sinks.fakes import NOW_MS, SCOPE, shop_past, shop_snapshot  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDE = ViewportSize(width=1440, height=1000)
PHONE = ViewportSize(width=390, height=844)


def queue_address(queue: str) -> str:
    """Return the URL of a queue of the shop."""
    return f"#/queue?system=aws_sqs&scope={SCOPE.replace('/', '%2F')}&queue={queue}"


def main() -> None:
    """Write all screenshots to docs/images."""
    store = SnapshotStore()
    for snapshot in (*shop_past(), shop_snapshot()):
        store.publish(snapshot)
    IMAGES.mkdir(parents=True, exist_ok=True)
    app = create_app(store, HttpSettings(clock_ms=lambda: NOW_MS))
    with serve(app, port=0) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        look = Camera(browser, server.url)
        look.take("page-light", "#/", WIDE)
        look.take("page-dark", "#/", WIDE, color_scheme="dark")
        look.take("page-phone", "#/", PHONE, device_scale_factor=2)
        look.take("queue-groups", queue_address("payments.fifo"), WIDE)
        look.take("queue-suspects", queue_address("orders"), WIDE, color_scheme="dark", prepare=open_advice)
        look.take("queue-dead-letters", queue_address("orders-dlq"), WIDE)
        look.take("queue-phone", queue_address("orders"), PHONE, device_scale_factor=2)
        look.take("page-search", "#/?filter=4711", WIDE)
        browser.close()


def open_advice(page: Page) -> None:
    """Expand the advice of the first signal."""
    page.get_by_text("What it means and what to do").first.click()


class Camera:
    """Opens a URL in a new page, pauses it, and takes a screenshot."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url

    def take(
        self,
        name: str,
        address: str,
        viewport: ViewportSize,
        *,
        prepare: Callable[[Page], None] | None = None,
        **context: Any,
    ) -> None:
        """Write `<name>.png`."""
        options: dict[str, Any] = {"viewport": viewport, "locale": "en-GB", "timezone_id": "UTC"} | context
        with self._browser.new_context(**options) as tab_context:
            page = tab_context.new_page()
            page.goto(f"{self._url}/{address}")
            page.wait_for_selector("#live[data-state=live]")
            page.wait_for_selector("[data-since]")
            if prepare is not None:
                prepare(page)
            page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    main()
