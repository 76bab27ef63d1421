"""The status page with many queues in Chromium: the time from an action until the result is shown."""

from __future__ import annotations

import statistics
import time
import urllib.request
from collections.abc import Callable
from typing import Any, Final

from playwright.sync_api import CDPSession, Page, sync_playwright

from sinks.clock import wall_ms
from sinks.http import HttpSettings, create_app, serve
from sinks.store import SnapshotStore
from tests.benchmarks.figures import Figure, Run
from tests.services.browser import find_chromium
from tests.sinks.fakes import many_queues

QUEUES: Final = 5_000
INTERACTIVE_MS: Final = 100
ROUNDS: Final = 15

_SHOWN: Final = """
([act, wanted]) => new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error(`not shown: ${act}`)), 60_000);
  const first = () => document.querySelector(".queue-table tbody th a")?.textContent ?? "";
  const before = first();
  const began = performance.now();
  const fits = () => (wanted === null ? first() !== before : first() === wanted);
  const observer = new MutationObserver(() => {
    if (!fits()) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
  });
  observer.observe(document.body, { childList: true, characterData: true, subtree: true });
  const click = (text) => [...document.querySelectorAll("button")].find((node) => node.textContent.includes(text)).click();
  if (act.startsWith("type ")) {
    const field = document.getElementById("filter");
    field.value = act.slice(5);
    field.dispatchEvent(new Event("input"));
  } else click(act);
})
"""
"""Performs an action and returns the milliseconds until a different first row of the table was painted."""


def measure(run: Run, *, quick: bool) -> None:
    """Turn pages, sort and search among 5,000 queues; each in wall time and in CPU time of the page's main thread."""
    rounds = 3 if quick else ROUNDS
    run.say(f"page: {QUEUES:,} queues in Chromium")
    store = SnapshotStore()
    store.publish(many_queues(QUEUES, wall_ms()))
    with serve(create_app(store, HttpSettings()), port=0) as server, sync_playwright() as playwright:
        _answers(run, f"{server.url}/api/v1/queues?limit=50", rounds)
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        page.set_default_timeout(60_000)
        cdp = page.context.new_cdp_session(page)
        cdp.send("Performance.enable", {"timeDomain": "threadTicks"})

        def opened() -> float:
            page.goto("about:blank")
            began = time.monotonic()
            page.goto(f"{server.url}/#/?sort=queue")
            page.wait_for_selector(".queue-table tbody tr:nth-child(50)")
            return (time.monotonic() - began) * 1_000

        opening = [opened() for _ in range(rounds)]
        run.add(Figure("page.open.wall", "open until fifty rows are shown, median", statistics.median(opening), "ms"))
        # Paused, so that only the interaction is measured.
        page.get_by_role("button", name="Pause").click()
        _add(run, cdp, "turn", "turn to the next page", lambda: _shown(page, "Next", None), rounds)
        _add(run, cdp, "sort", "sort by another column", lambda: _shown(page, "Queue", None), rounds)

        def searched() -> float:
            took = _shown(page, f"type tenant-{QUEUES - 1:05d}", f"tenant-{QUEUES - 1:05d}-jobs")
            _shown(page, "type ", None)
            return took

        what = "find the last queue, with the 200 ms the field waits for more letters"
        _add(run, cdp, "search", what, searched, rounds, at_most_ms=INTERACTIVE_MS + 200, of=2)
        browser.close()


def _shown(page: Page, act: str, wanted: str | None) -> float:
    return float(page.evaluate(_SHOWN, [act, wanted]))


def _answers(run: Run, url: str, rounds: int) -> None:
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        urllib.request.urlopen(url).read()
        spent.append((time.process_time() - began) * 1_000)
    run.add(Figure("page.answer", "the service's answer of fifty rows, CPU time, median", statistics.median(spent), "ms"))


def _add(
    run: Run,
    cdp: CDPSession,
    key: str,
    what: str,
    act: Callable[[], float],
    rounds: int,
    *,
    at_most_ms: float = INTERACTIVE_MS,
    of: int = 1,
) -> None:
    """Add figures for `act`, which interacts `of` times and returns the milliseconds of the first interaction."""
    walls, spent = [], []
    for _ in range(rounds):
        before = _busy_ms(cdp)
        walls.append(act())
        spent.append((_busy_ms(cdp) - before) / of)
    detail = {"wall_ms": walls, "cpu_ms": spent}
    run.add(Figure(f"page.{key}.wall", f"{what}, median", statistics.median(walls), "ms", at_most=at_most_ms, detail=detail))
    run.add(Figure(f"page.{key}.cpu", f"{what}, CPU time of the page, median", statistics.median(spent), "ms"))


def _busy_ms(cdp: CDPSession) -> float:
    metrics: list[dict[str, Any]] = cdp.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")) * 1_000
