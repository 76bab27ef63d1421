"""Bodies put together from compressed blocks: one gzip member with the right checksum."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from sinks.gzip_blocks import Block, Piece, gzipped, in_blocks, joined


def pieces(seed: int) -> list[Piece]:
    """Return blocks and bytes of random sizes, empty ones among them."""
    chance = random.Random(seed)
    texts = [
        chance.randbytes(chance.choice([0, 1, 63, 64, 4_096, chance.randrange(300_000)])) for _ in range(chance.randrange(12))
    ]
    return [Block([text[:7], text[7:]]) if chance.random() < 0.6 else text for text in texts]


@pytest.mark.parametrize("seed", range(40))
def test_the_body_is_one_gzip_member_with_the_text(seed: int) -> None:
    """A decompressor checks the length and the checksum, which is combined from those of the pieces."""
    body, text = gzipped(pieces(seed)), joined(pieces(seed))
    decompress = zlib.decompressobj(16 + zlib.MAX_WBITS)
    assert decompress.decompress(body) == text
    assert decompress.eof
    assert not decompress.unused_data
    assert gzip.decompress(body) == text


def test_equal_blocks_are_reused() -> None:
    """A block is compared by its parts; the parts that fill no block are bytes."""
    lines = [b"%d\n" % i for i in range(10)]
    before = in_blocks(lines, 4)
    assert [type(piece) for piece in before] == [Block, Block, bytes]
    after = in_blocks([*lines[:4], b"new\n", *lines[5:]], 4, before)
    assert after[0] is before[0]
    assert after[1] is not before[1]
    assert joined(after) == b"".join([*lines[:4], b"new\n", *lines[5:]])


def test_blocks_without_text_are_nothing() -> None:
    """A family that no queue has must not look like one with lines."""
    assert not any(in_blocks([b""] * 10, 4))
