"""New inputs from existing ones: a fuzzer's usual mutations, reproducible from a seed."""

from __future__ import annotations

import random
from typing import Final

WORDS: Final = (
    *(
        b'{"',
        b'"}',
        b"[",
        b"]",
        b"{}",
        b"null",
        b"1e999",
        b"-0",
        b"\\u0000",
        b"\\ud800",
        b"\xff\xff\xff\xff",
        b"\x00" * 8,
        b"\n",
        b'"',
    ),
    *(
        b"9223372036854775808",
        b'"at":',
        b'"type":"sent"',
        b'"v":2',
        b"\xef\xbb\xbf",
        b"\xf0\x9f\x98\x80",
        b"{{",
        b"*a",
        b"&a",
        b"!!python/",
    ),
)
_LONGEST: Final = 64 << 10


def mutated(draw: random.Random, content: bytes, other: bytes) -> bytes:
    """Return another input: bytes changed, words inserted, parts removed, repeated or taken from another input."""
    made = bytearray(content)
    for _ in range(1 << draw.randrange(5)):
        at = draw.randrange(len(made) + 1)
        end = min(len(made), at + draw.choice((1, 2, 4, 16, 256)))
        match draw.randrange(8):
            case 0 if made:
                made[at % len(made)] = draw.randrange(256)
            case 1 if made:
                made[at % len(made)] ^= 1 << draw.randrange(8)
            case 2:
                made[at:at] = draw.choice(WORDS)
            case 3:
                del made[at:end]
            case 4:
                made[at:at] = made[at:end] * draw.choice((1, 2, 64))
            case 5:
                begin = draw.randrange(len(other) + 1)
                made[at:end] = other[begin : begin + end - at]
            case 6:
                made[at:end] = draw.randbytes(end - at)
            case 7:
                del made[at:]
    return bytes(made[:_LONGEST])
