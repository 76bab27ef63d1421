"""What service fixtures are made with."""

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
    """Starts and finds what tests need; what cannot be had skips the test, or fails it under `CI=true`."""

    @contextmanager
    def running(self, starting: AbstractContextManager[Service]) -> Iterator[Service]:
        """What `starting` gives, until the run ends."""
        with ExitStack() as stack:
            try:
                service = stack.enter_context(starting)
            except ServiceUnavailable as missing:
                self.give_up(missing)
            yield service

    def found(self, find: Callable[[], Service]) -> Service:
        """What `find` finds."""
        try:
            return find()
        except (ServiceUnavailable, RuntimeUnavailable) as missing:
            self.give_up(missing)

    @staticmethod
    def give_up(missing: Exception) -> NoReturn:
        """End the test that needs what is missing."""
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
