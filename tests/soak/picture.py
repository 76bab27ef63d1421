"""Series of samples as one SVG with a small chart for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

_WIDTH: Final = 720
_HEIGHT: Final = 90
_LEFT: Final = 150


def picture(title: str, minutes: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """Draw `series`, by name with its unit. Each chart starts at zero, so that growth appears in proportion."""
    height = 40 + len(series) * (_HEIGHT + 20)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/><text x="8" y="20" font-size="14">{escape(title)}</text>',
    ]
    for number, (name, samples) in enumerate(series.items()):
        top = 36 + number * (_HEIGHT + 20)
        parts += _chart(name, minutes, samples, top)
    return "\n".join([*parts, "</svg>", ""])


def _chart(name: str, minutes: Sequence[float], samples: Sequence[float], top: int) -> list[str]:
    most, last = max([*samples, 1e-9]), max([*minutes, 1e-9])
    bottom, width = top + _HEIGHT, _WIDTH - _LEFT - 20
    points = " ".join(
        f"{_LEFT + width * minute / last:.1f},{bottom - _HEIGHT * value / most:.1f}"
        for minute, value in zip(minutes, samples, strict=True)
    )
    return [
        f'<text x="8" y="{top + 14}">{escape(name)}</text><text x="8" y="{top + 32}" fill="#666">up to {most:,.1f}</text>',
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - 20}" y2="{bottom}" stroke="#999"/>',
        f'<polyline points="{points}" fill="none" stroke="#2563eb" stroke-width="1.5"/>',
        f'<text x="{_WIDTH - 20}" y="{bottom + 13}" text-anchor="end" fill="#666">{last:.0f} min</text>',
    ]
