"""The limit of a function's response is one of bytes, and the runtimes post text as UTF-8."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from queuewatch import aws_lambda as layer
from queuewatch.aws_lambda.outcome import MAX_RESPONSE_BYTES, returned
from tests.services.node import find_node
from tests.services.provider import Services

MODULE = Path(layer.__file__).parent / "node/outcome.mjs"
FITS, TOO_LARGE = "returned", "response too large"
_QUOTES = 2
_HALF = (MAX_RESPONSE_BYTES - _QUOTES) // 2

RESPONSES = [
    ("x", MAX_RESPONSE_BYTES - _QUOTES, FITS),
    ("x", MAX_RESPONSE_BYTES - _QUOTES + 1, TOO_LARGE),
    ("é", _HALF, FITS),
    ("é", _HALF + 1, TOO_LARGE),
    ("\U0001f4e6", MAX_RESPONSE_BYTES // 4, TOO_LARGE),
]
"""A character, how often the function returns it, and the outcome."""


@pytest.mark.parametrize(("character", "count", "reason"), RESPONSES)
def test_the_python_wrapper_counts_bytes(character: str, count: int, reason: str) -> None:
    """The runtimes of Python 3.12 and later do not escape what is not ASCII."""
    response = json.dumps(character * count, ensure_ascii=False)
    assert returned(response, ["m"], reports_failures=True).reason == reason
    assert returned(response.encode(), ["m"], reports_failures=True).reason == reason


def test_half_a_surrogate_pair_is_no_error() -> None:
    """It is left to the runtime what it makes of it."""
    assert returned('"' + "\ud83d" * (_HALF + 1) + '"', ["m"], reports_failures=True).reason == TOO_LARGE


def test_the_node_wrapper_counts_bytes(services: Services) -> None:
    """Node never escapes what is not ASCII."""
    script = f"""
        import {{ returned }} from {json.dumps(MODULE.as_uri())};
        const found = {json.dumps(RESPONSES)}.map(([one, count]) => returned(one.repeat(count), ["m"], true).reason);
        console.log(JSON.stringify(found));
    """
    command = [services.found(find_node).executable, "--input-type=module", "--eval", script]
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)
    assert found == [reason for *_, reason in RESPONSES]
