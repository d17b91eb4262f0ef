"""The independent decoder detects every violation of the specification: a check that cannot fail proves nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import xxhash

from storage.format import control
from storage.format.snapshot_header import seal
from tests.support.spec_decoder import SpecViolation, decode_wal_file, read_data_dir
from tests.support.spec_meta import decode_current, decode_format, decode_lock, decode_reserve
from tests.unit.format.hand_written import (
    DURABLE,
    LOG,
    MORE,
    TS,
    append,
    batch,
    controlled,
    create,
    data_dir,
    flip,
    sync_point,
    unknown_type,
    wal_file,
    with_flag,
)

GAP = control.EvictWatermark(loss=[(2, 9, "crash")])


def refused(reason: str, content: bytes) -> None:
    with pytest.raises(SpecViolation, match=re.escape(reason)):
        decode_wal_file(content, number=1)


def directory_refused(reason: str, root: Path) -> None:
    with pytest.raises(SpecViolation, match=re.escape(reason)):
        read_data_dir(root)


def test_a_directory_is_read_record_by_record(tmp_path: Path) -> None:
    content = create() + append(1) + batch(append(2), append(3, tag=b"t", node=b"n"), first_seq=2)
    decoded = read_data_dir(data_dir(tmp_path / "d", content))
    log = decoded.topics["orders"]
    assert sorted(log.records) == [1, 2, 3]
    assert (log.records[3].tag, log.records[3].node, log.records[3].data) == (b"t", b"n", b"1")
    assert (log.head, log.promised_head, decoded.torn) == (3, 3, False)


def test_frames_are_grouped_into_batches() -> None:
    file = decode_wal_file(append(1) + batch(append(2), append(3), first_seq=2), number=1)
    assert [len(one.frames) for one in file.batches] == [1, 2]


def test_zeros_after_the_last_frame_are_not_a_torn_end() -> None:
    file = decode_wal_file(append(1) + bytes(4096), number=1)
    assert (file.end, file.torn) == (len(append(1)), "")


def test_an_incomplete_batch_ends_the_log_at_its_start() -> None:
    whole = batch(append(2), append(3), first_seq=2)
    file = decode_wal_file(append(1) + whole[:-1], number=1)
    assert file.end == len(append(1))
    assert file.torn


def test_damage_without_a_later_sync_point_is_a_torn_end() -> None:
    damaged = bytearray(append(1) + append(2) + append(3))
    damaged[len(append(1)) + 20] ^= 1
    file = decode_wal_file(bytes(damaged), number=1)
    assert file.end == len(append(1))
    assert file.torn


def test_damage_below_a_sync_point_is_a_violation() -> None:
    frames = append(1) + append(2)
    damaged = bytearray(frames + sync_point(len(frames)))
    damaged[20] ^= 1
    refused("says this was synced", bytes(damaged))


def test_damage_between_synced_bytes_and_the_sync_point_is_a_torn_end() -> None:
    frames = append(1) + append(2)
    damaged = bytearray(frames + sync_point(len(frames), offset=len(append(1))))
    damaged[len(append(1)) + 20] ^= 1
    assert decode_wal_file(bytes(damaged), number=1).torn


@pytest.mark.parametrize("file", [2, 7])
def test_a_sync_point_of_another_file_does_not_count(file: int) -> None:
    frames = append(1) + append(2)
    damaged = bytearray(frames + sync_point(len(frames), file=file))
    damaged[20] ^= 1
    assert decode_wal_file(bytes(damaged), number=1).torn


def test_every_offset_after_damage_is_tried_for_a_sync_point() -> None:
    junk = b"\x10" * 23 + bytes(17) + b"\x10\x00"
    at = len(append(1)) + len(junk)
    refused("says this was synced", append(1) + junk + sync_point(at))


FRAME_VIOLATIONS = [
    ("unknown frame type 99", unknown_type()),
    ("bit 3 without a Batch frame", with_flag(append(1), MORE)),
    ("bytes follow", batch(append(1), append(2), first_seq=1, body_bytes=5)),
    ("bit 3 does not agree", batch(append(1), append(2), first_seq=1, frames=1, body_bytes=len(append(1)))),
    ("first_seq", batch(append(1), append(2))),
    ("first_seq", batch(append(1), append(2), first_seq=2)),
    ("one run of one log", batch(append(1), append(3), first_seq=1)),
    ("one run of one log", batch(append(1), append(2, topic_id=2), first_seq=1)),
    ("within a batch", batch(append(1), sync_point(129), first_seq=1)),
    ("SyncPoint says it lies at", append(1) + sync_point(1)),
    ("of file 2 in file 1", append(1) + sync_point(len(append(1)), file=2)),
    ("is no end of a batch", append(1) + sync_point(len(append(1)), offset=7)),
    ("beyond itself", append(1) + sync_point(len(append(1)), offset=4000)),
    ("hash is not that of the Appends", batch(append(1), first_seq=1, key="k", hash=bytes(16))),
    ("key and hash", batch(append(1), first_seq=1, key="k")),
    ("says what to delete", controlled(control.Delete(bound_head=1))),
    ("topic_id 0", controlled(control.HeadWatermark(reserved=1), topic_id=0)),
]


@pytest.mark.parametrize(("reason", "content"), FRAME_VIOLATIONS)
def test_a_frame_against_the_specification_is_refused(reason: str, content: bytes) -> None:
    refused(reason, content)


@pytest.mark.parametrize(
    ("remark", "content"),
    [
        ("always fsync class", create(flags=0)),
        ("here nothing is", create() + controlled(control.EvictWatermark())),
    ],
)
def test_a_harmless_deviation_is_a_remark(tmp_path: Path, remark: str, content: bytes) -> None:
    assert remark in read_data_dir(data_dir(tmp_path / "d", content)).remarks[0]


def test_the_batch_hash_covers_the_records_as_sent() -> None:
    parts = (b"n", b"", b"1", b'{"m":2}', b"", b"t", b"[]", b"")
    digest = xxhash.xxh3_128_digest(b"".join(len(part).to_bytes(4, "little") + part for part in parts))
    appends = append(1, '{"data":1,"meta":{"m":2},"deliver_at":5}', node=b"n"), append(2, '{"data":[]}', tag=b"t")
    file = decode_wal_file(batch(*appends, first_seq=1, key="k", hash=digest), number=1)
    assert len(file.batches[0].frames) == 2


@pytest.mark.parametrize(
    "data",
    [
        '{"data": 1}',
        '{"meta":1,"data":1}',
        '{"data":1,"deliver_at":1,"meta":1}',
        '{"data":1}x',
        '{"data":1,"data":2}',
        '{"data":}',
        '{"data":NaN}',
        '{"data":1,"other":1}',
        '{"data":"\t"}',
        '{"data":1',
        "[]",
        "",
    ],
)
def test_append_data_must_be_an_object_that_begins_with_data(data: str) -> None:
    with pytest.raises(SpecViolation):
        decode_wal_file(append(1, data), number=1)


def test_append_data_keeps_its_bytes() -> None:
    body = decode_wal_file(append(1, '{"data":[1.10, 1e400],"meta":"ä","h":[]}'), number=1).frames[0].body
    assert body is not None
    assert (body.data, body.meta, body.extra) == (b"[1.10, 1e400]", '"ä"'.encode(), {"h": []})


@pytest.mark.parametrize(
    ("reason", "content"),
    [
        ("where 2 was due", append(1) + append(3)),
        ("was given out before", append(1) + append(1)),
        ("goes back", append(1) + append(2, ts=TS - 1)),
        ("does not fit class fsync", append(1, flags=0)),
        ("is below head", append(1) + append(2) + controlled(control.HeadWatermark(reserved=1))),
        ("ahead of every seq", append(1) + controlled(control.Delete(bound_head=2, before_seq=2))),
        ("ahead of every seq", append(1) + controlled(control.EvictWatermark(floors={"cap": 3}))),
        ("leaves a hole", append(1) + controlled(control.EvictWatermark(loss=[(3, 9, "crash")]))),
        ("in use before", create()),
        ("TopicDelete of", controlled(control.TopicDelete(name="other"))),
    ],
)
def test_a_contradictory_log_is_refused(tmp_path: Path, reason: str, content: bytes) -> None:
    directory_refused(reason, data_dir(tmp_path / "d", create() + content))


@pytest.mark.parametrize("why", [GAP, control.HeadWatermark(reserved=9)])
def test_a_jump_in_seq_may_be_announced(tmp_path: Path, why: control.Control) -> None:
    content = create() + append(1) + controlled(why) + append(10)
    assert sorted(read_data_dir(data_dir(tmp_path / "d", content)).topics["orders"].records) == [1, 10]


def test_without_fsync_class_an_ack_is_promised_only_up_to_the_reservation(tmp_path: Path) -> None:
    content = create(config={"durability": "disk"}) + controlled(control.HeadWatermark(reserved=1))
    content += append(1, flags=0) + append(2, flags=0)
    log = read_data_dir(data_dir(tmp_path / "d", content)).topics["orders"]
    assert (log.head, log.promised_head) == (2, 1)


@pytest.mark.parametrize(
    ("delete", "left"),
    [
        (control.Delete(bound_head=3, before_seq=3), [3, 4]),
        (control.Delete(bound_head=3, match=["tag", "Eq", "ab"]), [1, 3, 4]),
        (control.Delete(bound_head=3, match=["tag", "Glob", "a*"]), [1, 4]),
        (control.Delete(bound_head=3, match=["tag", "Glob", "a*"], before_seq=3), [1, 3, 4]),
        (control.Delete(bound_head=4, seqs=[1, 4], ack=True), [2, 3]),
        (control.EvictWatermark(floors={"cap": 4}), [4]),
    ],
)
def test_deleted_and_evicted_records_are_not_live(tmp_path: Path, delete: control.Control, left: list[int]) -> None:
    content = create() + append(1) + append(2, tag=b"ab") + append(3, tag=b"abc") + append(4, tag=b"abc")
    decoded = read_data_dir(data_dir(tmp_path / "d", content + controlled(delete)))
    assert sorted(decoded.topics["orders"].records) == left


def test_a_deleted_log_is_gone_and_frames_of_unknown_logs_are_passed_over(tmp_path: Path) -> None:
    content = append(7, topic_id=5) + create() + append(1) + controlled(control.TopicDelete(name="orders"))
    content += append(2) + create("orders", topic_id=2)
    decoded = read_data_dir(data_dir(tmp_path / "d", content))
    assert (decoded.topics["orders"].topic_id, list(decoded.logs)) == (2, [2])


@pytest.mark.parametrize("unused", [[], [b""], [bytes(100)]])
def test_a_torn_end_is_allowed_at_byte_0_of_the_file_behind_the_last(tmp_path: Path, unused: list[bytes]) -> None:
    root = data_dir(tmp_path / "d", create() + append(1), *unused, append(2)[:-3])
    assert read_data_dir(root).torn


@pytest.mark.parametrize(
    ("reason", "files"),
    [
        ("does not end with its last frame", [create() + bytes(8), append(1)]),
        ("does not end with its last frame", [create() + b"x", append(1)]),
        ("cut to its length", [create() + bytes(8), b"junk"]),
        ("nothing was written to yet", [create(), b"junk", b"junk"]),
    ],
)
def test_an_earlier_file_with_an_impossible_end_is_refused(tmp_path: Path, reason: str, files: list[bytes]) -> None:
    directory_refused(reason, data_dir(tmp_path / "d", *files))


def test_a_missing_file_number_is_refused(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "d", create(), append(1), append(2))
    wal_file(root, 2).unlink()
    directory_refused("a file number is missing", root)


def test_a_log_without_its_first_file_needs_a_snapshot(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "d", create(), append(1))
    wal_file(root, 1).unlink()
    directory_refused("there is no snapshot", root)


def test_names_the_specification_does_not_know_are_refused(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "d", create())
    (root / "wal" / "notes.txt").write_text("hello")
    directory_refused("knows no such file", root)


def test_a_frame_in_the_wrong_shard_is_refused(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "d", shards=2)
    due = xxhash.xxh3_64_intdigest(LOG.to_bytes(8, "little")) % 2
    for shard in (0, 1):
        (root / "wal" / f"shard-{shard:02d}").mkdir()
    (root / "wal" / f"shard-{1 - due:02d}" / wal_file(root).name).write_bytes(create())
    directory_refused("does not belong to shard", root)


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    root = data_dir(tmp_path / "d", create())
    snapshot = root / "meta" / f"snapshot-{1:016d}.bin"
    snapshot.write_bytes(seal(b"\x80"))
    flip(snapshot, 24)
    directory_refused("checksum", root)


@pytest.mark.parametrize(
    "content", [b"", b"1\nc1\n2", b"3\nc1\n2\n", b"1\n\n2\n", b"1\nc1\n0\n", b"1\nc1\n2\nx\n", b"\xff"]
)
def test_a_format_file_is_three_lines(content: bytes) -> None:
    with pytest.raises(SpecViolation):
        decode_format(content)


@pytest.mark.parametrize("content", [b"", b"boot", b"1 2 3"])
def test_a_lock_file_is_a_pid_and_maybe_a_word(content: bytes) -> None:
    with pytest.raises(SpecViolation):
        decode_lock(content)


def test_current_names_a_file_and_a_reserve_is_empty() -> None:
    assert decode_current(b"wal-0000000000000012.log\n") == 12
    assert decode_reserve(bytes(9)) == 9
    with pytest.raises(SpecViolation):
        decode_current(b"wal-x.log")
    with pytest.raises(SpecViolation):
        decode_reserve(bytes(9) + b"x")


def test_flags_of_frames_are_readable() -> None:
    frame = decode_wal_file(append(1, flags=DURABLE | 3 << 5), number=1).frames[0]
    assert (frame.durable, frame.more, frame.hops) == (True, False, 3)
