"""An account that the collector may read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sources.cloudflare.api_stub import TOKEN, Stub, serving


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """An account without queues, with its token where the collector and the doctor read it."""
    monkeypatch.setenv("QUEUEWATCH_CLOUDFLARE_TOKEN", TOKEN)
    with serving() as stub:
        yield stub
