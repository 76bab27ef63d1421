"""The attributes that are kept whatever else is reported are those that the code reads."""

from __future__ import annotations

import re
from pathlib import Path

import streaming
from streaming.core.state.queues import READ_ATTRIBUTES

READS = re.compile(r"""\.(?:attribute|number)\("(\w+)"\)|summary\.attributes(?:\.get\(|\[)"(\w+)\"""")


def test_every_attribute_that_is_read_is_kept() -> None:
    """A rule that reads another one adds it there."""
    sources = Path(streaming.__file__).parent
    read = {a or b for path in sources.rglob("*.py") for a, b in READS.findall(path.read_text(encoding="utf-8"))}
    assert {"visibility_timeout_s", "redrive_task", "paused"} <= read
    assert read <= READ_ATTRIBUTES
