"""A `.tag` file, decoded from docs/reference/format.md alone: everything is checked, nothing is searched."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

from tests.support.spec_frames import SpecViolation

HEADER_BYTES = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecTags:
    """The content of a tag file. `seqs`: by tag, in the file's order."""

    first_seq: int
    data_bytes: int
    gen: int
    seqs: dict[bytes, list[int]]


def decode_tag_file(content: bytes, name: str = "tag file") -> SpecTags:
    """Decode a whole tag file. Raises SpecViolation."""

    def number(offset: int, size: int) -> int:
        return int.from_bytes(content[offset : offset + size], "little")

    def check(true: bool, offset: int, reason: str) -> None:
        if not true:
            raise SpecViolation(name, offset, reason)

    check(len(content) >= HEADER_BYTES, 0, "too short for a header")
    check(content[:4] == b"TTAG", 0, "magic")
    check(number(4, 4) == 1, 4, "version")
    first_seq, data_bytes, gen = number(8, 8), number(16, 8), number(24, 8)
    tags, entries, tag_bytes = number(32, 4), number(36, 4), number(40, 8)
    check(xxhash.xxh3_64_intdigest(content[:48] + content[56:]) == number(48, 8), 48, "checksum")
    runs_at = HEADER_BYTES + 8 * tags
    names_at = runs_at + 4 * entries
    check(names_at + tag_bytes == len(content), 32, "the counts do not come to the length of the file")
    seqs: dict[bytes, list[int]] = {}
    tag_end = run_end = 0
    before = b""
    for row in range(tags):
        tag_begin, run_begin = tag_end, run_end
        tag_end, run_end = number(HEADER_BYTES + 8 * row, 4), number(HEADER_BYTES + 8 * row + 4, 4)
        tag = content[names_at + tag_begin : names_at + tag_end]
        run = [first_seq + number(runs_at + 4 * entry, 4) for entry in range(run_begin, run_end)]
        check(tag > before, HEADER_BYTES + 8 * row, "tags do not ascend")
        check(bool(run) and run == sorted(set(run)), HEADER_BYTES + 8 * row + 4, "a run does not ascend, or is empty")
        seqs[tag] = run
        before = tag
    check((tag_end, run_end) == (tag_bytes, entries), HEADER_BYTES, "the last row does not end with the last bytes")
    return SpecTags(first_seq=first_seq, data_bytes=data_bytes, gen=gen, seqs=seqs)
