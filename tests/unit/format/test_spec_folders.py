"""The independent decoder compares segments with log and snapshots: a check that cannot fail proves nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage import Engine, Options, ReadQuery
from storage.format import control, segment_frame, tag_file
from storage.segments import names
from storage.segments.names import SegmentId
from storage.state.manifest import SegmentState
from tests.support.spec_decoder import SpecViolation, read_data_dir
from tests.unit.format.hand_segments import (
    FRAMES,
    SEALED_BYTES,
    log,
    mark,
    opened,
    segment_event,
    segment_path,
    segmented,
    write_segment,
)
from tests.unit.format.hand_written import append, controlled, flip, section, snapshot_file

SEALED, ACTIVE = SegmentId(1, 1), SegmentId(1, 5)
STATES = [
    SegmentState(first_seq=1, end_seq=5, sealed=True, live=2, live_bytes=5, data_bytes=SEALED_BYTES),
    SegmentState(first_seq=5, end_seq=7, live=2, live_bytes=2),
]
DELETE_BITS = segment_frame.LIVE ^ segment_frame.DELETED


def refused(root: Path, reason: str) -> None:
    with pytest.raises(SpecViolation, match=re.escape(reason)):
        read_data_dir(root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    segmented(tmp_path / "data")
    return tmp_path / "data"


def test_a_topic_is_read_from_its_segments_and_the_log(root: Path) -> None:
    decoded = read_data_dir(root)
    found = decoded.topics["orders"]
    assert [*found.records] == [1, 4, 5, 6, 7]
    assert (found.records[1].tag, found.records[4].node, found.records[4].data) == (b"red", b"w-1", b"1.10")
    assert [(each.first_seq, each.end_seq, each.sealed) for each in found.manifest.segments.values()] == [
        (1, 5, True),
        (5, 7, False),
    ]
    assert decoded.unnamed == ()


async def test_the_engine_reads_the_same(root: Path) -> None:
    async with Engine.open(root, Options(wal_file_bytes=1 << 16, wal_reserve_bytes=1 << 12)) as engine:
        result = await engine.read("orders", ReadQuery())
    assert [each.seq for each in result.records] == [1, 4, 5, 6, 7]


def test_records_are_read_when_the_log_is_trimmed_behind_a_snapshot(tmp_path: Path) -> None:
    root = tmp_path / "data"
    segmented(root, append(7))
    snapshot_file(root, _section())
    assert [*read_data_dir(root).topics["orders"].records] == [1, 4, 5, 6, 7]


def _section(**changed: Any) -> Any:
    """The snapshot section for the log of `segmented` before its record 7."""
    values = {"head_seq": 6, "as_of": (1, 0), "absorbed": 6, "segments": STATES, "live_count": 4, "live_bytes": 7}
    return section(**{**values, **changed})


def test_a_byte_flipped_anywhere_is_refused(root: Path) -> None:
    for id, ending in ((id, ending) for id in (SEALED, ACTIVE) for ending in (names.DATA, names.IDX)):
        path = segment_path(root, id, ending)
        for offset in range(path.stat().st_size):
            flip(path, offset)
            with pytest.raises(SpecViolation):
                read_data_dir(root)
            flip(path, offset)
    read_data_dir(root)


def test_a_missing_or_truncated_file_is_refused(root: Path) -> None:
    for id, ending in ((id, ending) for id in (SEALED, ACTIVE) for ending in (names.DATA, names.IDX)):
        path = segment_path(root, id, ending)
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        refused(root, path.name)
        path.unlink()
        refused(root, "the log names it, and it is not there")
        path.write_bytes(content + b"more")
    read_data_dir(root)  # more is the rest of a write


def test_a_deletion_may_be_ahead_of_the_index_only_when_the_log_tells(tmp_path: Path) -> None:
    for name, text, fine in (("a", "red", True), ("b", "blue", False)):
        root = tmp_path / name
        segmented(root, log(end=controlled(control.Delete(bound_head=7, match=["tag", "Eq", text]))))
        content = bytearray(segment_path(root, SEALED).read_bytes())
        content[len(FRAMES[1]) - 1] ^= DELETE_BITS
        segment_path(root, SEALED).write_bytes(content)
        if fine:
            assert 1 not in read_data_dir(root).topics["orders"].records
        else:
            refused(root, "though .data says")


def test_a_record_missing_from_its_segment_is_refused(root: Path) -> None:
    write_segment(root, {5}, first_seq=5, end_seq=7)
    refused(root, "record 6 is Record")


def test_a_record_deleted_in_the_files_alone_is_refused(root: Path) -> None:
    write_segment(root, {5, 6}, first_seq=5, end_seq=7, deleted={6})
    refused(root, "record 6 is Record")


def test_a_record_deleted_in_the_log_may_still_be_live_in_the_files(root: Path) -> None:
    write_segment(root, {1, 3, 4}, first_seq=1, end_seq=5)
    assert 3 not in read_data_dir(root).topics["orders"].records


def test_unnamed_files_are_listed(root: Path) -> None:
    write_segment(root, {1, 4}, first_seq=1, end_seq=5, gen=1)
    assert read_data_dir(root).unnamed == tuple(
        f"topics/0000000000000001/seg-00000000000000000001.1.{ending}" for ending in ("data", "idx")
    )


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([], "record 1 has the tag b'red', and the file does not say so"),
        ([(b"blue", 1)], "record 1 has the tag b'red', and the file does not say so"),
        ([(b"red", 1), (b"red", 4)], "record 4 has the tag b'', and the file does not say so"),
        ([(b"red", 1), (b"red", 2)], "there is no record 2"),
    ],
)
def test_a_valid_tag_file_with_other_tags_is_refused(root: Path, pairs: list[tuple[bytes, int]], reason: str) -> None:
    segment_path(root, SEALED, names.TAG).write_bytes(tag_file.encode(1, 0, SEALED_BYTES, pairs))
    refused(root, reason)


def test_a_damaged_or_foreign_tag_file_is_ignored(root: Path) -> None:
    path = segment_path(root, SEALED, names.TAG)
    path.write_bytes(tag_file.encode(1, 0, SEALED_BYTES - 1, [(b"blue", 1)]))
    read_data_dir(root)
    path.write_bytes(b"TTAG")
    read_data_dir(root)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"opened": b""}, "log 1: a mark at 4, but there is no active segment"),
        ({"mark_behind": mark(t1=9)}, "log 1: a mark at 9, beyond head 6"),
        ({"opened_behind": opened(4)}, "opened at 4, though records up to 4 are in segments"),
        ({"sealed": b""}, "opened at 5, though the one that begins with 1 is not sealed"),
        ({"sealed": segment_event("sealed", end_seq=4, data_bytes=1)}, "sealed: end_seq is 4, the marks come to 5"),
        ({"sealed": segment_event("sealed", gen=1, data_bytes=1)}, "sealed: generation 1, the segment has 0"),
        ({"sealed": segment_event("sealed", data_bytes=SEALED_BYTES - 1)}, f"{SEALED_BYTES - 1} by the log"),
        ({"end": segment_event("sealed", data_bytes=SEALED_BYTES)}, "sealed a second time"),
        ({"end": segment_event("rewritten", data_bytes=1)}, "rewritten: generation 0, the segment has 0"),
        ({"end": segment_event("dropped", first_seq=2, data_bytes=1)}, "there is no segment that begins with 2"),
        (
            {"end": segment_event("dropped", first_seq=5, end_seq=7, data_bytes=1)},
            "an active segment with records is never dropped",
        ),
        ({"end": segment_event("dropped", data_bytes=SEALED_BYTES)}, "record 1 is Record"),
    ],
)
def test_out_of_order_segment_frames_are_refused(tmp_path: Path, parts: dict[str, bytes], reason: str) -> None:
    segmented(tmp_path / "data", log(**parts))
    refused(tmp_path / "data", reason)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"absorbed": 4, "segments": STATES[:1]}, "absorbed is 4, the frames below as_of come to 6"),
        ({"segments": STATES[:1]}, "segments begin with [1], the frames below as_of come to [1, 5]"),
        ({"segments": [STATES[0], SegmentState(first_seq=5, end_seq=7, sealed=True)]}, "segment Named"),
        ({"segments": [SegmentState(first_seq=1, end_seq=5), STATES[1]]}, "that is not the last one is not sealed"),
        ({"live_count": 4}, "live_count is 4"),
        ({"live_bytes": 9}, "live_bytes is 9"),
    ],
)
def test_a_section_with_other_segment_values_is_refused(root: Path, changed: dict[str, Any], reason: str) -> None:
    said: dict[str, Any] = {"head_seq": 7, "as_of": (1, len(log())), "last_ts": _last_ts(root), "live_count": 5}
    snapshot_file(root, _section(**said, live_bytes=8))
    read_data_dir(root)
    snapshot_file(root, _section(**{**said, "live_bytes": 8, **changed}))
    refused(root, reason)


def _last_ts(root: Path) -> int:
    return read_data_dir(root).topics["orders"].records[7].ts


def test_counts_in_a_section_must_match_the_segment_files(tmp_path: Path) -> None:
    root = tmp_path / "data"
    segmented(root, b"")
    snapshot_file(root, _section(as_of=(0, 0)))
    read_data_dir(root)
    wrong = [
        SegmentState(first_seq=1, end_seq=5, sealed=True, live=3, live_bytes=5, data_bytes=SEALED_BYTES),
        STATES[1],
    ]
    snapshot_file(root, _section(as_of=(0, 0), segments=wrong, live_count=5))
    refused(root, "log 1: (3, 5) live in the segment from 1, found (2, 5)")


@pytest.mark.parametrize("in_the_log", [True, False])
def test_only_the_sum_of_assumed_bytes_is_checked(tmp_path: Path, in_the_log: bool) -> None:
    root = tmp_path / "data"
    segmented(root, log() if in_the_log else b"")
    guess = msgspec.structs.replace(STATES[0], live_bytes=9, assumed=True)
    said: dict[str, Any] = {"as_of": (0, 0), "segments": [guess, STATES[1]], "live_bytes": 11}
    if in_the_log:
        said |= {"as_of": (1, len(log())), "head_seq": 7, "last_ts": _last_ts(root), "live_count": 5, "live_bytes": 12}
    snapshot_file(root, _section(**said))
    read_data_dir(root)
    more = said["live_bytes"] + 1
    snapshot_file(root, _section(**{**said, "live_bytes": more}))
    refused(root, f"live_bytes is {more}")
    for wrong in (msgspec.structs.replace(guess, live=3), msgspec.structs.replace(guess, assumed=False)):
        snapshot_file(root, _section(**{**said, "segments": [wrong, STATES[1]]}))
        refused(root, "live")


def test_a_section_may_contain_a_mark_above_its_as_of(root: Path) -> None:
    below = len(log(mark_behind=b"", in_the_log=b""))
    said: dict[str, Any] = {"head_seq": 6, "last_ts": _last_ts(root) - 1}
    snapshot_file(root, _section(as_of=(1, below), **said))
    assert read_data_dir(root).topics["orders"].manifest.absorbed == 6


def test_a_section_with_an_unwritten_mark_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "data"
    frames = log(mark_behind=b"", in_the_log=b"")
    segmented(root, frames)
    last_ts = read_data_dir(root).topics["orders"].records[6].ts
    snapshot_file(root, _section(head_seq=6, as_of=(1, len(frames)), last_ts=last_ts))
    refused(root, "a snapshot says that 6 is absorbed, the marks go to 4")
