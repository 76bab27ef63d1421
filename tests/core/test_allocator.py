"""A process that keeps freed memory does not have the system clear pages for it again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from streaming.core.allocator import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        np.ones(8_000_000)  # 64 MB: by default, glibc maps every array above 32 MB anew
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    """Return the page faults of eight large arrays, one after the other, after 16 others."""
    found = subprocess.run([sys.executable, "-c", FAULTS, how], check=True, capture_output=True, text=True)
    return int(found.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_that_was_freed_is_used_again() -> None:
    """Without it, all pages of each array are new."""
    assert page_faults("kept") * 10 < page_faults("usual")
