"""The wrapper's overhead, with a healthy endpoint on the same machine."""

import pytest

from tests.client.aws_lambda.overhead import measure
from tests.services.node import find_node
from tests.services.process import ServiceUnavailable


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["python", "node"])
def test_an_invocation_costs_less_than_two_milliseconds_of_cpu(runtime: str) -> None:
    """Only processor time is tested: waiting time depends on the machine's other load (`overhead.py` measures both)."""
    if runtime == "node":
        try:
            find_node()
        except ServiceUnavailable as missing:
            pytest.skip(str(missing))
    found = measure(runtime, 500)
    assert found["cpu"] < 2, found
