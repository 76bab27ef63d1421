"""Chromium, for tests that look at pages as users do."""

import shutil

from tests.services.process import ServiceUnavailable


def find_chromium() -> str:
    """Return the path of the machine's Chromium, for playwright's `executable_path`. Raises `ServiceUnavailable`."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise ServiceUnavailable("no chromium on PATH; install the package chromium")
