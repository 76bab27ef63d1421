"""A browser for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

# Else each load of a page takes a new process, and that a third of the page's processor time. All pages are our own.
_ONE_RENDERER = ("--renderer-process-limit=1", "--process-per-site", "--disable-site-isolation-trials")


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """The machine's Chromium, started once."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage", *_ONE_RENDERER],
        )
        yield started
        started.close()
