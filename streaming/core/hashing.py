"""Message ids as 128 bits, and the 64-bit join keys. Works on whole columns.

A UUID in its usual text form *is* its 128 bits, so its text can be rebuilt and need not be stored. Any other id is hashed to
128 bits and its text stored beside it. At 64 bits, one in ~370,000 populations of ten million ids contains a collision.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.core.columns import nonzero

U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]

_DASHES = np.array([8, 13, 18, 23])
_BLOCKS = (slice(0, 8), slice(9, 13), slice(14, 18), slice(19, 23), slice(24, 36))

_AT_A_TIME = 1 << 13
"""Ids hashed at a time, so that intermediate results stay in the CPU cache."""

_PRIME_A = np.uint64(0x9E3779B97F4A7C15)
_PRIME_B = np.uint64(0xBF58476D1CE4E5B9)
_PRIME_C = np.uint64(0x94D049BB133111EB)
_INVERSE_B, _INVERSE_C = (np.uint64(pow(int(prime), -1, 1 << 64)) for prime in (_PRIME_B, _PRIME_C))


def mix(x: U64) -> U64:
    """Scramble 64-bit values so that every input bit affects every output bit (splitmix64's finaliser)."""
    x = (x ^ (x >> np.uint64(30))) * _PRIME_B
    x = (x ^ (x >> np.uint64(27))) * _PRIME_C
    return x ^ (x >> np.uint64(31))


def id_hash(hi: U64, lo: U64) -> U64:
    """Hash 128-bit ids to 64 bits, independent of the queue. Spreads messages over shards."""
    return mix(hi * _PRIME_A + mix(lo + _PRIME_A))


def row_key(hi: U64, lo: U64, queue_hash: U64) -> U64:
    """Hash (queue, message) to 64 bits. Events and state are joined on this key."""
    return mix(id_hash(hi, lo) + queue_hash)


def lows(hi: U64, keys: U64, queue_hash: U64) -> U64:
    """Return the low words of ids from their high words and the keys of `row_key`: every step of it can be reversed."""
    lo: U64 = _unmixed(_unmixed(_unmixed(keys) - queue_hash) - hi * _PRIME_A) - _PRIME_A
    return lo


def _unmixed(x: U64) -> U64:
    """Reverse `mix`."""
    x = (x ^ (x >> np.uint64(31)) ^ (x >> np.uint64(62))) * _INVERSE_C
    x = (x ^ (x >> np.uint64(27)) ^ (x >> np.uint64(54))) * _INVERSE_B
    result: U64 = x ^ (x >> np.uint64(30)) ^ (x >> np.uint64(60))
    return result


def text_hash(text: str) -> int:
    """Hash a single string, such as a queue name, to 64 stable bits. Columns use `hash_texts`."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


_queue_hashes: dict[tuple[str, str, str], int] = {}


def queue_hash(name: tuple[str, str, str]) -> int:
    """Return a stable 64-bit hash of (system, scope, queue)."""
    found = _queue_hashes.get(name)
    if found is None:
        if len(_queue_hashes) > 1_000_000:
            _queue_hashes.clear()
        # Names may hold any character: the lengths mark where each part ends.
        found = _queue_hashes[name] = text_hash("\0".join((*name, *(str(len(part)) for part in name))))
    return found


def ids_to_bits(ids: pa.Array) -> tuple[U64, U64, npt.NDArray[np.bool_]]:
    """Convert ids to 128 bits (null counts as empty): the high words, the low words, and which ids are UUIDs in text form."""
    n = len(ids)
    hi = np.zeros(n, dtype=np.uint64)
    lo = np.zeros(n, dtype=np.uint64)
    is_uuid = np.zeros(n, dtype=np.bool_)
    if n == 0:
        return hi, lo, is_uuid
    data, starts, lengths = _string_buffers(ids)
    maybe = nonzero(lengths == 36)
    for first in range(0, len(maybe), _AT_A_TIME):
        some = maybe[first : first + _AT_A_TIME]
        begin = starts[some[0]]
        if np.array_equal(starts[some], begin + 36 * np.arange(len(some))):
            text = data[begin : begin + 36 * len(some)].reshape(-1, 36)
        else:
            text = data[starts[some][:, None] + np.arange(36)]
        words, good = _hex_words(text)
        good &= (text[:, _DASHES] == ord("-")).all(axis=1)
        rows = some[good]
        hi[rows] = words[good, 0] << np.uint64(32) | words[good, 1]
        lo[rows] = words[good, 2] << np.uint64(32) | words[good, 3]
        is_uuid[rows] = True
    others = nonzero(~is_uuid)
    if len(others):
        hi[others], lo[others] = _hash_texts(data, starts[others], lengths[others])
    return hi, lo, is_uuid


def _hex_words(text: U8) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Return the 32 digits of each UUID text (n × 36) as four 32-bit numbers, and whether all are lower-case hex digits.

    Eight digits are one 64-bit word, and every step processes all bytes of a word at once.
    """
    digits = np.empty((len(text), 32), dtype=np.uint8)
    for at, block in zip((0, 8, 12, 16, 20), _BLOCKS, strict=True):
        digits[:, at : at + block.stop - block.start] = text[:, block]
    given = digits.view("<u8")
    value = (given & _each(0x0F)) + ((given >> np.uint64(6)) & _each(0x01)) * np.uint64(9)
    is_letter = ((value + _each(0x76)) >> np.uint64(7)) & _each(0x01)
    # Digits rebuilt from the values: as values are below 16, only 0-9 and a-f come back unchanged.
    again = value + _each(ord("0")) + is_letter * np.uint64(ord("a") - ord("0") - 10)
    good = ((again == given) & ((value & _each(0xF0)) == 0)).all(axis=1)
    pairs = ((value << np.uint64(4)) | (value >> np.uint64(8))) & np.uint64(0x00FF_00FF_00FF_00FF)
    pairs = (pairs | (pairs >> np.uint64(8))) & np.uint64(0x0000_FFFF_0000_FFFF)
    pairs = (pairs | (pairs >> np.uint64(16))) & np.uint64(0xFFFF_FFFF)
    return pairs.astype("<u4").byteswap().astype(np.uint64), good


def _each(byte: int) -> np.uint64:
    return np.uint64(byte * 0x0101_0101_0101_0101)


def hash_texts(texts: pa.Array) -> U64:
    """Hash each string of `texts` to 64 bits; null gives 0, which no string gives in practice."""
    data, starts, lengths = _string_buffers(texts)
    hi, lo = _hash_texts(data, starts, lengths)
    hashed = id_hash(hi, lo)
    if texts.null_count:
        hashed[np.asarray(pc.is_null(texts).to_numpy(zero_copy_only=False))] = 0
    return hashed


def hash_in_queues(hashed: U64, queue_hashes: U64) -> U64:
    """Hash (queue, string) from the hash of each: the same string in two queues gives two values. 0 stays 0."""
    return np.where(hashed != 0, mix(hashed + queue_hashes), np.uint64(0))


def bits_to_uuid(hi: int, lo: int) -> str:
    """Return the text of a UUID from its bits."""
    digits = f"{hi:016x}{lo:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _string_buffers(strings: pa.Array) -> tuple[U8, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    if isinstance(strings, pa.ChunkedArray):
        strings = strings.combine_chunks()
    if pa.types.is_dictionary(strings.type):
        strings = strings.dictionary_decode()
    if strings.null_count:
        strings = pc.fill_null(strings, "")
    if not pa.types.is_string(strings.type):
        strings = strings.cast(pa.string())
    _, offsets_buffer, data_buffer = strings.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[strings.offset : strings.offset + len(strings) + 1]
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.zeros(0, dtype=np.uint8)
    starts = offsets[:-1].astype(np.int64)
    return data, starts, offsets[1:].astype(np.int64) - starts


def _hash_texts(data: U8, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> tuple[U64, U64]:
    """Hash eight bytes of every text at a time; texts of the same number of words are processed together."""
    n = len(starts)
    hi = mix(lengths.astype(np.uint64) + _PRIME_A)
    lo = mix(lengths.astype(np.uint64) + _PRIME_B)
    if n == 0 or len(data) == 0:
        return hi, lo
    words = (lengths + 7) // 8
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    masks = np.array([(1 << (8 * k)) - 1 for k in range(8)] + [(1 << 64) - 1], dtype=np.uint64)
    octet = np.arange(8)
    for word in range(int(words.max())):
        rows = nonzero(words > word)
        at = starts[rows] + 8 * word
        chunk = np.ascontiguousarray(padded[at[:, None] + octet]).view("<u8")[:, 0].astype(np.uint64)
        # Mask the last word of a text, which also holds the start of the next text.
        chunk &= masks[np.minimum(lengths[rows] - 8 * word, 8)]
        hi[rows] = mix((hi[rows] ^ chunk) * _PRIME_A + _PRIME_C)
        lo[rows] = mix((lo[rows] + chunk) * _PRIME_C ^ (hi[rows] >> np.uint64(7)))
    return hi, lo
