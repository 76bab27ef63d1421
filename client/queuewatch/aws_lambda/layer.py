"""Builds the Lambda layers: `python -m queuewatch.aws_lambda.layer python|node --out FILE`."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""A fixed timestamp: the same files give the same archive, so that a deployment can tell that nothing changed."""


_LEFT_OUT: Final = frozenset(("proxy",))
"""Parts of the package that functions do not use."""


def build(runtime: str, out: Path) -> Path:
    """Write the layer of `python` or `node` as a zip archive to `out`.

    Raises `ValueError` for another runtime and `OSError` if the file cannot be written.
    """
    if runtime not in _CONTENTS:
        raise ValueError(f"no layer for {runtime!r}; there is one for {' and one for '.join(_CONTENTS)}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(_CONTENTS[runtime]()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, source.read_bytes())
    return out


def _python() -> Iterator[tuple[str, Path]]:
    package = _HERE.parent
    for source in package.rglob("*"):
        inside = source.relative_to(package)
        if source.suffix in (".py", ".typed") and inside.parts[0] not in _LEFT_OUT and source.name != "layer.py":
            yield f"python/queuewatch/{inside.as_posix()}", source


def _node() -> Iterator[tuple[str, Path]]:
    for source in (_HERE / "node").iterdir():
        if source.suffix in (".mjs", ".json"):
            yield f"nodejs/node_modules/queuewatch-lambda/{source.name}", source


_CONTENTS: Final = {"python": _python, "node": _node}


def main() -> None:
    """Build one layer."""
    parser = argparse.ArgumentParser(prog="python -m queuewatch.aws_lambda.layer", description="Build a Lambda layer.")
    parser.add_argument("runtime", choices=sorted(_CONTENTS))
    parser.add_argument("--out", type=Path, required=True, help="the zip archive to write")
    given = parser.parse_args()
    try:
        out = build(given.runtime, given.out)
    except OSError as error:
        parser.exit(1, f"{parser.prog}: {given.out} cannot be written: {error.strerror}; give a writable file with --out\n")
    print(f"{out}: {out.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
