"""Charts: axes with round ticks, lines with gaps where values are unknown, and peaks that survive downsampling."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sinks import svg


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, ["0", "2.5", "5", "7.5", "10"]),
        (0, 0.9, ["0", "0.25", "0.5", "0.75", "1"]),
        (0, 4100, ["0", "2,000", "4,000", "6,000"]),
        (5, 5, ["5", "6"]),
    ],
)
def test_an_axis_ends_at_a_round_number_beyond_the_highest(low: float, high: float, ticks: list[str]) -> None:
    """Axes also work if all values are the same."""
    assert [text for _, text in svg.linear(low, high, 0, 100).ticks] == ticks


@pytest.mark.parametrize(
    ("seconds", "first", "count"),
    [(8, "22:13:20", 9), (3600, "22:20", 6), (7 * 86_400, "11-15", 7), (0, "22:13:20", 1)],
)
def test_time_ticks_are_round(seconds: float, first: str, count: int) -> None:
    """The axis begins at 2023-11-14 22:13:20 UTC."""
    ticks = svg.time_axis(1_700_000_000_000, 1_700_000_000_000 + seconds * 1000, 0, 800).ticks
    assert (ticks[0][1], len(ticks)) == (first, count)


def test_a_logarithmic_axis_gives_each_decade_the_same_room() -> None:
    """Values outside the axis are clamped to its ends."""
    axis = svg.Axis(1, 1000, 0, 300, logarithmic=True)
    assert [round(axis.px(v)) for v in (0.1, 1, 10, 100, 1000, 9999)] == [0, 0, 100, 200, 300, 300]


def test_a_line_has_gaps_where_values_are_unknown() -> None:
    """Two runs become two lines, and a lone point is visible."""
    axis = svg.linear(0, 10, 0, 100)
    drawn = svg.plot([svg.Line("a", [(0, 1), (1, 2), (2, None), (3, 4)])], axis, axis)
    path = next(
        e.get("d") or ""
        for e in ElementTree.fromstring(svg.picture(drawn, 9, 9, "t")).iter("path")
        if e.get("class") == "line c0"
    )
    assert path.count("M") == 2
    assert path.endswith("h1.5")


def test_downsampling_keeps_every_peak_and_gap() -> None:
    """A thousand points are drawn on ten pixels."""
    axis = svg.Axis(0, 1000, 0, 10)
    points: list[svg.Point] = [(n, 99.0 if n == 555 else None if n == 222 else 1.0) for n in range(1000)]
    kept = svg.thinned(points, axis)
    assert len(kept) < 60
    assert (555, 99.0) in kept
    assert (222, None) in kept


def test_a_standalone_chart_is_a_whole_svg_file_with_escaped_text() -> None:
    """The file has its namespace and style, and markup in a title is escaped."""
    root = ElementTree.fromstring(svg.picture(svg.label("<b>&", 1, 2), 30, 20, 'a "b" <c>', alone=True))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("aria-label") == 'a "b" <c>'
    assert next(root.iter("{http://www.w3.org/2000/svg}text")).text == "<b>&"
