"""Writes the table of signals by basis of knowledge into docs/partial-telemetry.md; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from streaming.judge.findings.signals import SIGNAL_NAMES  # noqa: E402
from streaming.judge.knowledge.basis import BASES  # noqa: E402 # the checkout need not be installed
from streaming.judge.knowledge.signal_requirements import supported  # noqa: E402

PAGE = ROOT / "docs" / "partial-telemetry.md"
MARK = "<!-- generated: signal table -->\n"


def table() -> str:
    """Return the table as Markdown."""
    lines = ["| signal | " + " | ".join(f"`{basis}`" for basis in BASES) + " |", "|---" * (len(BASES) + 1) + "|"]
    for signal in SIGNAL_NAMES:
        cells = [supported(signal, basis) or "–" for basis in BASES]
        lines.append(f"| `{signal}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page; with `--check`, only return 1 if it differs."""
    text = PAGE.read_text(encoding="utf-8")
    wanted = text[: text.index(MARK)] + MARK + "\n" + table()
    if "--check" in sys.argv:
        if text != wanted:
            print(f"{PAGE.name} is out of date: run make generate", file=sys.stderr)
        return int(text != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
