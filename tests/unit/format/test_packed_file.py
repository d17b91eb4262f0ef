"""Packed files: the code and the independent decoder read the golden file the same."""

from __future__ import annotations

from contextlib import closing

from storage.platform.posix import PosixFileSystem
from storage.segments.names import SegmentId
from storage.segments.packed import PackedData
from tests.golden.make_golden import FOLDER
from tests.golden.packed import DATA, DELETE_BYTES, HEADER
from tests.support.spec_packed import decode_packed

PATH = FOLDER / "packed.zdata.bin"


def test_the_golden_file_is_read_with_its_values() -> None:
    with closing(PosixFileSystem().open(str(PATH), write=False)) as file:
        data = PackedData(file, str(PATH), SegmentId(HEADER.topic_id, HEADER.first_seq, HEADER.gen, packed=True))
        assert (data.header, data.pread(1 << 20, 0), data.damage) == (HEADER, DATA, {})
        assert data.delete_bytes() == DELETE_BYTES
        assert data.deleted_bits() == 0b1010


def test_the_independent_decoder_agrees() -> None:
    assert decode_packed(PATH.read_bytes()) == (*HEADER[:3], DELETE_BYTES, DATA)
