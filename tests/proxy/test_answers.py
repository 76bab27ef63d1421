"""Responses are the same with and without the proxy, including their headers."""

from __future__ import annotations

import pytest

from tests.proxy.scenario import SCENARIOS, record
from tests.services.proxy import Proxy


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "long_poll"])
def test_an_application_gets_the_same_answers(upstream: str, shared_proxy: Proxy, scenario: str) -> None:
    """Values, errors, status and headers of every call in the scenario are compared."""
    direct = record(upstream, scenario)
    proxied = record(shared_proxy.endpoint, scenario)
    for number, (expected, found) in enumerate(zip(direct, proxied, strict=True)):
        assert found == expected, f"call {number}"
    assert shared_proxy.stats()["telemetry_errors"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("upstream", ["elasticmq"], indirect=True)
def test_a_long_poll_of_20_s_ends_as_it_does_without_the_proxy(upstream: str, shared_proxy: Proxy) -> None:
    """Both polls run at the same time, and at one server, so the test waits only once."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        direct, proxied = pool.map(lambda endpoint: record(endpoint, "long_poll"), (upstream, shared_proxy.endpoint))
    assert proxied == direct
    assert ["seconds", 20] in proxied
