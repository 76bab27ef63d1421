"""Files that Spark wrote are replaced so that Spark still reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.checkpoint.spark_files import rewrite_spark_file
from streaming.folder import LocalFolder


def test_a_crash_never_leaves_new_content_with_the_old_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would refuse to read the file."""
    folder = LocalFolder(tmp_path)
    folder.write("7", b"old")
    folder.write(".7.crc", b"that of the old")
    replace = Path.replace

    def crash(path: Path, target: Path) -> Path:
        replace(path, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        rewrite_spark_file(folder, "7", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    assert folder.read("7") == b"new"
