"""`python -m alerts.generate [--check]`: write the repository's generated files, or report which are out of date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from alerts.rules import RUNBOOK, RUNBOOK_PAGE, render

ROOT = Path(__file__).resolve().parents[1]


def files() -> dict[Path, str]:
    """Return every generated file of the repository with its text."""
    rendered = dict(render())
    # The repository has the runbook only in docs; `queuewatch rules` also writes the HTML version, which the service serves.
    del rendered[RUNBOOK_PAGE]
    runbook = {ROOT / "docs" / "runbook.md": rendered.pop(RUNBOOK)}
    return {ROOT / "alerts" / "generated" / name: text for name, text in rendered.items()} | runbook


def outdated() -> list[Path]:
    """Return files whose text differs from the catalogue, and files that are no longer generated."""
    wanted = files()
    present = {path for path in (ROOT / "alerts" / "generated").rglob("*") if path.is_file()}
    changed = {path for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    return sorted(changed | (present - wanted.keys()))


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 1 if `--check` finds an outdated file."""
    parser = argparse.ArgumentParser(prog="python -m alerts.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is out of date")
    if parser.parse_args(arguments).check:
        stale = outdated()
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not what the catalogue says: run python -m alerts.generate\n")
        return 1 if stale else 0
    wanted = files()
    for path in outdated():
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
