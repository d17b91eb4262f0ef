"""storage.format.tag_file: written tags are found, by tag and by prefix, and damage is always detected."""

from __future__ import annotations

import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from storage.format.tag_file import HEADER_SIZE, TagFile, TagFileDamaged, TagFileUnsupported, encode
from tests.golden import segment_tags
from tests.golden.make_golden import FOLDER
from tests.support.spec_tag import decode_tag_file
from tests.unit.format.mutations import one_byte_changes, truncations

Pairs = set[tuple[bytes, int]]

FIRST = 1_000_001
# Few letters, with 0xff among them, so that tags share prefixes and the ends of ranges occur.
TAGS = st.lists(st.sampled_from([b"a", b"b", b"\xff"]), min_size=1, max_size=4).map(b"".join)
PAIRS = st.sets(st.tuples(TAGS, st.integers(FIRST, FIRST + 60)), max_size=40)


class Source:
    """Bytes whose reads are counted."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reads: list[int] = []

    def pread(self, size: int, offset: int) -> bytes:
        self.reads.append(size)
        return self.content[offset : offset + size]


def opened(content: bytes) -> TagFile:
    return TagFile.open(Source(content).pread, len(content))


@given(PAIRS, TAGS)
def test_a_tag_finds_exactly_its_records(pairs: Pairs, tag: bytes) -> None:
    assert opened(encode(FIRST, 0, 99, pairs)).exact(tag) == sorted(seq for each, seq in pairs if each == tag)


@given(PAIRS, st.one_of(TAGS, st.just(b"")))
def test_a_prefix_finds_exactly_the_records_whose_tag_begins_with_the_prefix(pairs: Pairs, text: bytes) -> None:
    expected = sorted(seq for tag, seq in pairs if tag.startswith(text))
    assert opened(encode(FIRST, 0, 99, pairs)).prefix(text) == expected


@given(PAIRS)
def test_the_independent_decoder_reads_the_same(pairs: Pairs) -> None:
    decoded = decode_tag_file(encode(FIRST, 3, 99, pairs))
    assert (decoded.first_seq, decoded.gen, decoded.data_bytes) == (FIRST, 3, 99)
    assert {(tag, seq) for tag, seqs in decoded.seqs.items() for seq in seqs} == pairs


@given(st.lists(st.tuples(TAGS, st.integers(FIRST, FIRST + 60)), unique=True, max_size=20), st.randoms())
def test_the_order_of_the_pairs_makes_no_difference(pairs: list[tuple[bytes, int]], random: object) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert encode(FIRST, 0, 99, shuffled) == encode(FIRST, 0, 99, pairs)


def test_the_file_of_a_segment_without_tags_is_an_empty_header() -> None:
    content = encode(FIRST, 0, 99, [])
    assert len(content) == HEADER_SIZE == 56
    assert (opened(content).exact(b"a"), opened(content).prefix(b"")) == ([], [])


def test_the_empty_tag_finds_no_record() -> None:
    assert opened(encode(FIRST, 0, 99, [(b"a", FIRST)])).exact(b"") == []


def test_the_header_has_seq_generation_and_size() -> None:
    opened_file = opened(encode(FIRST, 7, 4096, [(b"a", FIRST)]))
    assert (opened_file.first_seq, opened_file.gen, opened_file.data_bytes) == (FIRST, 7, 4096)


@pytest.mark.parametrize("pair", [(b"", FIRST), (b"a", FIRST - 1), (b"a", FIRST + (1 << 32))])
def test_an_invalid_pair_is_refused(pair: tuple[bytes, int]) -> None:
    with pytest.raises(ValueError, match="cannot be in a tag file"):
        encode(FIRST, 0, 99, [pair])


def test_the_greatest_entry_number_fits() -> None:
    last = FIRST + (1 << 32) - 1
    assert opened(encode(FIRST, 0, 99, [(b"a", last)])).exact(b"a") == [last]


# ---- golden bytes


@pytest.mark.parametrize("name", sorted(segment_tags.TAG_FILES))
def test_a_golden_tag_file_is_written_the_same(name: str) -> None:
    assert segment_tags.tag_files()[name] == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", sorted(segment_tags.TAG_FILES))
def test_a_golden_tag_file_is_read(name: str) -> None:
    expected = segment_tags.TAG_FILES[name]
    found = TagFile.open((FOLDER / name).read_bytes())
    assert (found.first_seq, found.gen, found.data_bytes) == (expected.first_seq, expected.gen, expected.data_bytes)
    for tag in {tag for tag, _ in expected.pairs}:
        assert found.exact(tag) == sorted(seq for each, seq in expected.pairs if each == tag)
    assert found.prefix(b"") == sorted(seq for _, seq in expected.pairs)


@pytest.mark.parametrize("name", sorted(segment_tags.TAG_FILES))
def test_a_golden_tag_file_is_as_documented(name: str) -> None:
    decoded = decode_tag_file((FOLDER / name).read_bytes(), name)
    pairs = {(tag, seq) for tag, seqs in decoded.seqs.items() for seq in seqs}
    assert pairs == set(segment_tags.TAG_FILES[name].pairs)


# ---- damage

SMALL = encode(FIRST, 1, 512, [(b"a", FIRST), (b"ab", FIRST + 2), (b"a", FIRST + 9)])


def test_every_changed_byte_is_detected() -> None:
    for offset, changed in one_byte_changes(SMALL):
        try:
            TagFile.open(changed)
        except TagFileDamaged:
            continue
        pytest.fail(f"changing byte {offset} left a valid tag file")


def test_every_truncation_is_refused() -> None:
    for cut in truncations(SMALL):
        with pytest.raises(TagFileDamaged):
            TagFile.open(cut)


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(TagFileDamaged):
        TagFile.open(SMALL + b"\0")


def _resealed(content: bytes) -> bytes:
    digest = xxhash.xxh3_64_intdigest(content[:48] + content[56:])
    return content[:48] + struct.pack("<Q", digest) + content[56:]


def test_a_valid_file_of_a_newer_version_is_unsupported_and_not_damaged() -> None:
    with pytest.raises(TagFileUnsupported):
        TagFile.open(_resealed(SMALL[:4] + struct.pack("<I", 2) + SMALL[8:]))


def test_counts_beyond_the_length_are_refused_without_an_allocation() -> None:
    with pytest.raises(TagFileDamaged):
        TagFile.open(_resealed(SMALL[:32] + struct.pack("<I", 0xFFFF_FFFF) + SMALL[36:]))


def test_a_file_changed_after_its_check_is_refused() -> None:
    source = Source(SMALL)
    file = TagFile.open(source.pread, len(SMALL))
    source.content = SMALL[:60]
    with pytest.raises(TagFileDamaged):
        file.exact(b"a")
    source.content = SMALL[:56] + b"\xff" * (len(SMALL) - 56)
    with pytest.raises(TagFileDamaged):
        file.prefix(b"a")
    source.content = SMALL[:60] + b"\xff" * 4 + SMALL[64:]  # run_end of the first row
    with pytest.raises(TagFileDamaged):
        file.exact(b"a")
    assert max(source.reads) <= len(SMALL)


# ---- how much is read


def test_a_search_reads_a_small_part_of_a_large_file() -> None:
    content = encode(1, 0, 1, [(f"customer-{number:06d}".encode(), number + 1) for number in range(20_000)])
    source = Source(content)
    file = TagFile.open(source.pread, len(content))
    assert sum(source.reads) == len(content)
    source.reads.clear()
    assert file.exact(b"customer-012345") == [12_346]
    assert sum(source.reads) < 1000 < len(content) // 100
    source.reads.clear()
    assert file.prefix(b"customer-0123") == list(range(12_301, 12_401))
    assert sum(source.reads) < 2000


def test_a_file_is_verified_in_pieces_of_a_mebibyte() -> None:
    content = encode(1, 0, 1, [(number.to_bytes(128, "big"), number) for number in range(1, 20_000)])
    source = Source(content)
    TagFile.open(source.pread, len(content))
    assert max(source.reads) <= 1 << 20 < len(content)
