"""The conclusions that the soak test draws from its samples."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.soak.flat import growth
from tests.soak.picture import picture


@pytest.mark.parametrize(
    ("samples", "grows"),
    [
        pytest.param([100.0] * 40, False, id="flat"),
        pytest.param([10.0 * n for n in range(16)] + [160.0] * 24, False, id="grows while it warms up"),
        pytest.param([100.0 + (n % 2) * 30 for n in range(40)], False, id="goes up and down"),
        pytest.param([100.0 + 2 * n for n in range(40)], True, id="grows for ever"),
        pytest.param([100.0] * 30 + [150.0] * 10, True, id="a step near the end"),
    ],
)
def test_noise_is_not_mistaken_for_growth(samples: list[float], grows: bool) -> None:
    """The limit is a fifth."""
    assert (growth(samples) > 0.2) == grows


def test_too_few_samples_are_refused() -> None:
    """A run of seconds proves nothing."""
    with pytest.raises(ValueError, match="too few"):
        growth([1.0] * 10)


def test_the_picture_is_an_image_with_every_series() -> None:
    """Names are escaped."""
    root = ET.fromstring(picture("a < b", [0, 1, 2], {"memory & more": [1, 2, 3], "latency": [0, 0, 0]}))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "memory & more", "latency"} <= set(texts)
