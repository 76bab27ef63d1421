"""Answers are the same with and without the proxy, and the events the same as those of the hooks."""

from __future__ import annotations

import pytest

from tests.proxy.scenario import SCENARIOS, record
from tests.services.proxy import Proxy


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "long_poll"])
def test_an_application_gets_the_same_answers(upstream: str, shared_proxy: Proxy, scenario: str) -> None:
    """Every call of the scenario: values, errors, status and headers."""
    direct = record(upstream, scenario)
    proxied = record(shared_proxy.endpoint, scenario)
    for number, (expected, found) in enumerate(zip(direct, proxied, strict=True)):
        assert found == expected, f"call {number}"
    assert shared_proxy.stats()["telemetry_errors"] == 0


@pytest.mark.slow
def test_a_long_poll_of_20_s_ends_as_it_would_without(upstream: str, shared_proxy: Proxy) -> None:
    """Both at once, to wait only once."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        direct, proxied = pool.map(lambda endpoint: record(endpoint, "long_poll"), (upstream, shared_proxy.endpoint))
    assert proxied == direct
    assert ["seconds", 20] in proxied
