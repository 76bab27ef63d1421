"""Tests whose service is unavailable are skipped with the reason; in CI, which must provide it, they fail."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.services.process import ServiceUnavailable


@contextmanager
def services() -> Iterator[None]:
    """Wrap the start of services."""
    try:
        yield
    except ServiceUnavailable as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
