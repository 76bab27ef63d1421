"""What becomes of a test whose service cannot be had: skipped with the reason, failed where CI promises it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.services.process import ServiceUnavailable


@contextmanager
def services() -> Iterator[None]:
    """Around what starts services."""
    try:
        yield
    except ServiceUnavailable as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
