"""Names of segment files: written one way, and no other name is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.segments import names
from storage.segments.names import SegmentId
from tests.support.spec_segment import decode_name

u64 = st.integers(0, (1 << 64) - 1)


@given(u64, u64, u64, st.sampled_from(["data", "idx", "tag"]))
def test_segment_paths_round_trip(topic_id: int, first_seq: int, gen: int, ext: str) -> None:
    path = names.path("/data", SegmentId(topic_id, first_seq, gen), ext)
    assert decode_name(path.removeprefix("/data/")) == (topic_id, first_seq, gen, ext)
    assert names.parse_name(path.rpartition("/")[2]) == (first_seq, gen, ext)
    assert path.rpartition("/")[0] == names.folder("/data", topic_id)


def test_the_first_generation_has_no_number() -> None:
    assert names.data_name(41, 0) == "seg-00000000000000000041.data"
    assert names.idx_name(41, 2) == "seg-00000000000000000041.2.idx"
    assert names.file_name(41, 10, names.TAG) == "seg-00000000000000000041.10.tag"


@pytest.mark.parametrize(
    "name",
    [
        "seg-41.data",
        "seg-00000000000000000041",
        "seg-00000000000000000041.0.data",
        "seg-00000000000000000041.01.data",
        "seg-00000000000000000041.data.tmp",
        "seg-00000000000000000041.log",
        "seg-0000000000000000004\u0664.data",
        "aseg-00000000000000000041.data",
        "seg-00000000000000000041.data\n",
        "",
    ],
)
def test_an_invalid_segment_file_name_is_refused(name: str) -> None:
    assert names.parse_name(name) is None


def test_folders_of_logs_are_recognised_by_name() -> None:
    found = ["00000000000000ff", "0000000000000002", "00000000000000FF", "2", "lost+found", "000000000000000000"]
    assert names.topic_ids(found) == [2, 255]
