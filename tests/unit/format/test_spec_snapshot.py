"""The independent decoder compares a snapshot with the frames below it, and uses it where frames are gone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage.format import control
from storage.format.snapshot_header import seal
from storage.snapshot import contents as snapshot
from tests.support.spec_decoder import SpecViolation, decode_snapshot, read_data_dir
from tests.unit.format.hand_written import TS, append, controlled, create, data_dir, section, snapshot_file, wal_file

FIRST = create() + append(1) + append(2)
END = (1, len(FIRST))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return data_dir(tmp_path / "data", FIRST, append(3))


def refused(root: Path, reason: str) -> None:
    with pytest.raises(SpecViolation, match=re.escape(reason)):
        read_data_dir(root)


def test_a_section_equal_to_the_frames_is_accepted(root: Path) -> None:
    snapshot_file(root, section(head_seq=2, as_of=END))
    assert read_data_dir(root).snapshots[0].sections[1].as_of == END


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "other"),
        ("config", {"type": "log", "durability": "disk"}),
        ("epoch", 9),
        ("head_seq", 3),
        ("reserved", 7),
        ("last_ts", TS + 1),
        ("floors", {"cap": 2}),
        ("loss", [(2, 2, "crash")]),
        ("live_count", 1),
        ("live_bytes", 3),
    ],
)
def test_a_section_different_from_the_frames_is_refused(root: Path, field: str, value: Any) -> None:
    snapshot_file(root, section(**{"head_seq": 2, "as_of": END, "live_count": 2, "live_bytes": 2, field: value}))
    refused(root, f"{field} is")


def test_only_frames_below_as_of_count(root: Path) -> None:
    snapshot_file(root, section(head_seq=3, as_of=END))
    refused(root, "head_seq is 3")


def test_a_log_that_ends_below_as_of_is_refused(root: Path) -> None:
    snapshot_file(root, section(head_seq=3, as_of=(2, 5000)))
    refused(root, "below as_of")


def test_a_log_whose_frames_are_all_trimmed_is_read_from_its_section(root: Path) -> None:
    idle = section(topic_id=9, name="idle", head_seq=0, as_of=(0, 0))
    snapshot_file(root, section(head_seq=2, as_of=END), idle)
    assert sorted(read_data_dir(root).logs) == [1, 9]


def test_state_of_trimmed_frames_is_taken_from_the_section(root: Path) -> None:
    trimmed = section(head_seq=2, as_of=END, floors={"cap": 3}, live_count=0, live_bytes=0, reserved=2)
    snapshot_file(root, trimmed, redo_from=(2, 0))
    wal_file(root, 1).unlink()
    log = read_data_dir(root).topics["orders"]
    assert (log.head, log.reserved, log.floors, sorted(log.records)) == (3, 2, {"cap": 3}, [3])


def test_a_jump_after_a_trimmed_log_is_refused(root: Path) -> None:
    snapshot_file(root, section(head_seq=1, as_of=(1, 10), live_count=0, live_bytes=0), redo_from=(2, 0))
    wal_file(root, 1).unlink()
    refused(root, "seq 3 where 2 was due")


def test_a_replay_start_in_a_trimmed_file_is_refused(root: Path) -> None:
    snapshot_file(root, section(head_seq=2, as_of=END), redo_from=(1, 0))
    wal_file(root, 1).unlink()
    refused(root, "which is gone")


def test_a_replay_start_beyond_the_end_is_refused(root: Path) -> None:
    snapshot_file(root, section(head_seq=2, as_of=END), redo_from=(2, 5000))
    refused(root, "behind the log's end")


def test_a_third_snapshot_may_be_older_than_the_log(root: Path) -> None:
    snapshot_file(root, section(head_seq=2, as_of=END), number=1, redo_from=(1, 0))
    later = section(head_seq=3, as_of=(2, len(append(3))), live_count=1, live_bytes=1, floors={"cap": 3})
    for number in (2, 3):
        snapshot_file(root, later, number=number, redo_from=(2, 0))
    wal_file(root, 1).unlink()
    assert [one.number for one in read_data_dir(root).snapshots] == [1, 2, 3]


def test_a_clean_stop_leaves_no_reservation(tmp_path: Path) -> None:
    disk = {"type": "log", "durability": "disk"}
    frames = create(config=disk) + controlled(control.HeadWatermark(reserved=9)) + append(1, flags=0)
    root = data_dir(tmp_path / "data", frames)
    kept = section(head_seq=1, as_of=(1, len(frames)), reserved=9, config=disk)
    snapshot_file(root, kept, clean=True)
    refused(root, "clean, yet reserved is 9 and head 1")
    snapshot_file(root, kept, clean=False)
    assert read_data_dir(root).topics["orders"].reserved == 9


def test_adjacent_loss_ranges_may_be_merged(tmp_path: Path) -> None:
    frames = create() + append(1) + controlled(control.EvictWatermark(loss=[(2, 4, "crash"), (5, 9, "crash")]))
    root = data_dir(tmp_path / "data", frames)
    joined = section(head_seq=9, as_of=(1, len(frames)), loss=[(2, 9, "crash")], live_count=1, live_bytes=1)
    snapshot_file(root, joined)
    assert read_data_dir(root).topics["orders"].head == 9


def _body(**changed: Any) -> bytes:
    whole = section(head_seq=0, as_of=(0, 0))
    body = snapshot.Body(
        created_ms=TS,
        shards=1,
        next_topic_id=2,
        pending_deletes=[],
        clean=False,
        redo_from=[(1, 0)],
        sections=[msgspec.msgpack.encode(whole)],
    )
    return seal(msgspec.msgpack.encode(msgspec.structs.asdict(body) | changed))


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("next_topic_id is in use", {"next_topic_id": 1}),
        ("not one redo_from a shard", {"shards": 2}),
        ("'clean' does not fit", {"clean": 1}),
        ("does not name: ['more']", {"more": 1}),
        ("'sections' does not fit", {"sections": [{}]}),
        ("'topic_id' is missing", {"sections": [b"\x80"]}),
    ],
)
def test_an_undocumented_body_is_refused(reason: str, changed: dict[str, Any]) -> None:
    with pytest.raises(SpecViolation, match=re.escape(reason)):
        decode_snapshot(_body(**changed))


def test_two_sections_of_a_log_are_refused() -> None:
    one = msgspec.msgpack.encode(section(head_seq=0, as_of=(0, 0)))
    with pytest.raises(SpecViolation, match="two sections"):
        decode_snapshot(_body(sections=[one, one]))


def test_key_columns_must_have_equal_lengths() -> None:
    keys = snapshot.Keys(
        digests=bytes(16), hashes=bytes(16), first_seqs=bytes(8), counts=bytes(4), remaining_ms=bytes(16)
    )
    uneven = msgspec.msgpack.encode(section(head_seq=0, as_of=(0, 0), keys=keys))
    with pytest.raises(SpecViolation, match="'keys' does not fit"):
        decode_snapshot(_body(sections=[uneven]))
