"""The helper that service fixtures use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NoReturn, TypeVar

import pytest

from streaming.spark.runtime import RuntimeUnavailable
from tests.services.process import ServiceUnavailable

Service = TypeVar("Service")


class Services:
    """Starts and finds what tests need; if something is unavailable, the test is skipped, or fails under `CI=true`."""

    @contextmanager
    def running(self, starting: AbstractContextManager[Service]) -> Iterator[Service]:
        """Start a service, yield it, and stop it at the end of the run."""
        with ExitStack() as stack:
            try:
                service = stack.enter_context(starting)
            except ServiceUnavailable as missing:
                self.give_up(missing)
            yield service

    def found(self, find: Callable[[], Service]) -> Service:
        """Return what `find` finds."""
        try:
            return find()
        except (ServiceUnavailable, RuntimeUnavailable) as missing:
            self.give_up(missing)

    @staticmethod
    def give_up(missing: Exception) -> NoReturn:
        """Skip or fail the test that needs what is missing."""
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
