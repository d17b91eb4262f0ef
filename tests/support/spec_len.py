"""A `.len` file, decoded from docs/reference/format.md alone."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from tests.support.spec_frames import SpecViolation

HEADER_BYTES = 44


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecLengths:
    """The content of a len file. `payloads`: in the order of the seqs, 0 where there is no record."""

    first_seq: int
    data_bytes: int
    gen: int
    payloads: tuple[int, ...]


def decode_len_file(content: bytes, name: str = "len file") -> SpecLengths:
    """Decode a whole len file. Raises SpecViolation."""

    def number(offset: int, size: int) -> int:
        return int.from_bytes(content[offset : offset + size], "little")

    def check(true: bool, offset: int, reason: str) -> None:
        if not true:
            raise SpecViolation(name, offset, reason)

    check(len(content) >= HEADER_BYTES, 0, "too short for a header")
    check(content[:4] == b"TLEN", 0, "magic")
    check(number(4, 4) == 1, 4, "version")
    check(xxhash.xxh3_64_intdigest(content[:36] + content[44:]) == number(36, 8), 36, "checksum")
    count = number(32, 4)
    check(HEADER_BYTES + 4 * count == len(content), 32, "the count does not come to the length of the file")
    return SpecLengths(
        first_seq=number(8, 8),
        data_bytes=number(16, 8),
        gen=number(24, 8),
        payloads=tuple(number(HEADER_BYTES + 4 * index, 4) for index in range(count)),
    )
