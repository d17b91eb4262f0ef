"""`python -m storage verify`: every kind of damage is found, named with its place, and distinguished from a torn
end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from storage.__main__ import main
from storage.format import control, wal_frame
from storage.format.snapshot_header import seal
from storage.inspect.directory import DataDirectory
from storage.inspect.verify import verify as run_verify
from storage.inspect.wal import Finding
from storage.platform import layout
from storage.platform.posix import PosixFile, PosixFileSystem
from storage.snapshot import contents as snapshot
from tests.support import wal_frames
from tests.unit.format.hand_written import (
    LOG,
    MORE,
    TS,
    append,
    batch,
    controlled,
    create,
    data_dir,
    flip,
    section,
    snapshot_file,
    sync_point,
    unknown_type,
    wal_file,
    with_flag,
)

OK, WRONG = 0, 1

CREATE = len(create())
RECORD = len(append(1))
FIRST = create() + append(1) + append(2)
FIRST_SYNCED = FIRST + sync_point(len(FIRST))


class Verify:
    """Runs the command and keeps its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, root: Path) -> tuple[int, str]:
        self._capsys.readouterr()
        code = main(["verify", str(root)])
        return code, self._capsys.readouterr().out


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    return Verify(capsys)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_a_sound_directory_has_no_problem(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST_SYNCED, batch(append(3), append(4), first_seq=3) + bytes(4096))
    code, output = verify(root)
    assert code == OK
    assert output.startswith("no problem; checked 7 frames (4 records, ")
    assert "in 2 log files of 1 shard, 0 snapshots" in output


def test_a_new_directory_has_no_problem(verify: Verify, root: Path) -> None:
    assert verify(data_dir(root))[0] == OK


@pytest.mark.parametrize("place", [0, 4, 38, RECORD - 1], ids=["length", "type", "data", "checksum"])
def test_a_flipped_byte_below_a_sync_point_is_damage(verify: Verify, root: Path, place: int) -> None:
    data_dir(root, FIRST_SYNCED)
    flip(wal_file(root), CREATE + place)
    code, output = verify(root)
    assert code == WRONG
    assert f"PROBLEM: wal/wal-0000000000000001.log at offset {CREATE}: Here a frame begins" in output
    assert f"everything below offset {len(FIRST)} was synced" in output


def test_a_zeroed_page_below_a_sync_point_is_damage(verify: Verify, root: Path) -> None:
    frames = create() + b"".join(append(seq) for seq in range(1, 201))
    data_dir(root, frames + sync_point(len(frames)))
    content = bytearray(wal_file(root).read_bytes())
    content[4096:8192] = bytes(4096)
    wal_file(root).write_bytes(content)
    code, output = verify(root)
    assert code == WRONG
    assert "was synced" in output


def test_zeros_between_frames_are_damage(verify: Verify, root: Path) -> None:
    frames = create() + bytes(100)
    code, output = verify(data_dir(root, frames + sync_point(len(frames))))
    assert (code, "zeros lie where a frame should begin" in output) == (WRONG, True)


def test_a_flipped_byte_above_the_last_sync_point_is_a_torn_end(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST_SYNCED + append(3))
    flip(wal_file(root), len(FIRST_SYNCED) + 40)
    code, output = verify(root)
    assert code == OK
    assert f"note: wal/wal-0000000000000001.log at offset {len(FIRST_SYNCED)}: The log ends here" in output
    assert f"copies the last {RECORD} bytes to quarantine/" in output


@pytest.mark.parametrize("missing", [1, RECORD - 1])
def test_a_truncated_last_file_is_a_torn_end(verify: Verify, root: Path, missing: int) -> None:
    code, output = verify(data_dir(root, FIRST[:-missing]))
    assert (code, "note: " in output) == (OK, True)


def test_an_incomplete_batch_at_the_end_is_a_torn_end_at_its_first_byte(verify: Verify, root: Path) -> None:
    code, output = verify(data_dir(root, FIRST + batch(append(3), append(4), first_seq=3)[:-1]))
    assert code == OK
    assert f"at offset {len(FIRST)}: The log ends here: an incomplete batch begins" in output
    assert "(2 records" in output


def test_a_truncated_earlier_file_is_damage(verify: Verify, root: Path) -> None:
    code, output = verify(data_dir(root, FIRST[:-3], append(3)))
    assert (code, "although later files hold frames" in output) == (WRONG, True)


def test_an_earlier_file_without_a_frame_is_damage(verify: Verify, root: Path) -> None:
    code, output = verify(data_dir(root, b"x" * 100, FIRST))
    assert (code, "PROBLEM: wal/wal-0000000000000001.log at offset 0" in output) == (WRONG, True)


def test_a_file_of_zeros_is_skipped_anywhere_in_the_log(verify: Verify, root: Path) -> None:
    assert verify(data_dir(root, FIRST, bytes(100), append(3), b"", bytes(10)))[0] == OK


def test_the_last_file_may_be_torn_at_its_first_byte(verify: Verify, root: Path) -> None:
    code, output = verify(data_dir(root, FIRST, b"", append(3)[:-1]))
    assert (code, "note: wal/wal-0000000000000003.log at offset 0" in output) == (OK, True)


def test_two_torn_files_are_damage(verify: Verify, root: Path) -> None:
    code, output = verify(data_dir(root, FIRST + b"x", b"y"))
    assert (code, "no frame can have been written here yet" in output) == (WRONG, True)


def test_a_missing_file_number_is_damage(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST, append(3), append(4), append(5))
    wal_file(root, 2).unlink()
    wal_file(root, 3).unlink()
    code, output = verify(root)
    assert code == WRONG
    assert "PROBLEM: wal: Files 2 to 3 are missing" in output
    assert "Seq 5 of topic 1 (orders) follows seq 2" in output


def test_a_log_without_its_first_file_needs_a_snapshot(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST, append(3))
    wal_file(root, 1).unlink()
    code, output = verify(root)
    assert (code, "no snapshot tells what came before" in output) == (WRONG, True)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (append(3, topic_id=LOG) + append(5), "Seq 5 of topic 1 (orders) follows seq 3"),
        (append(2), "Seq 2 of topic 1 (orders) is repeated"),
        (append(3, ts=TS - 1), "Time goes back in topic 1 (orders)"),
        (unknown_type(), "a newer version wrote it"),
        (with_flag(append(3), MORE) + bytes(50), "no Batch frame opened one"),
        (batch(append(3), append(4), first_seq=3, body_bytes=1), "announces 2 frames of 1 bytes"),
        (batch(append(3), append(4), first_seq=4), "The first_seq of this Batch frame"),
        (batch(append(3), sync_point(0), first_seq=3), "lies within the batch"),
        (sync_point(7), "It is in the wrong place"),
        (sync_point(len(FIRST), file=2), "It is in the wrong place"),
        (sync_point(len(FIRST), offset=9999), "but fewer bytes precede it"),
        (append(3, "[]"), "not a JSON object that begins with"),
        (controlled(control.Batch(frames=1, body_bytes=1)), "says that nothing follows it"),
    ],
)
def test_contradictory_frames_are_a_problem(verify: Verify, root: Path, content: bytes, sentence: str) -> None:
    code, output = verify(data_dir(root, FIRST + content))
    assert (code, sentence in output) == (WRONG, True), output


@pytest.mark.parametrize(
    "why", [control.EvictWatermark(loss=[(3, 9, "crash")]), control.HeadWatermark(reserved=9)], ids=["loss", "reserved"]
)
def test_an_announced_jump_in_seq_is_no_problem(verify: Verify, root: Path, why: control.Control) -> None:
    assert verify(data_dir(root, FIRST + controlled(why) + append(10)))[0] == OK


def test_an_unreadable_control_frame_is_a_problem(verify: Verify, root: Path) -> None:
    frame = controlled(control.HeadWatermark(reserved=5))
    broken = resealed(frame, frame[38:-8].replace(b"reserved", b"deserved"))
    code, output = verify(data_dir(root, FIRST + broken))
    assert (code, "The data of this HeadWatermark frame cannot be read" in output) == (WRONG, True)


def test_a_sound_snapshot_is_no_problem(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    snapshot_file(root, section(head_seq=2, as_of=(1, len(FIRST))), redo_from=(1, 0))
    code, output = verify(root)
    assert (code, "1 snapshot" in output) == (OK, True)


def test_a_damaged_snapshot_is_a_problem(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    flip(snapshot_file(root, section(head_seq=2, as_of=(1, len(FIRST)))), 30)
    code, output = verify(root)
    assert (code, "The snapshot is damaged: checksum mismatch." in output) == (WRONG, True)


def test_a_snapshot_with_an_invalid_body_is_a_problem(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    (root / "meta" / layout.snapshot_name(1)).write_bytes(seal(b"\x80"))
    assert verify(root)[0] == WRONG


def test_a_log_that_ends_below_a_snapshot_is_damage(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    snapshot_file(root, section(head_seq=3, as_of=(1, len(FIRST) + 1)))
    code, output = verify(root)
    assert (code, "synced frames are missing" in output) == (WRONG, True)


def test_a_snapshot_whose_replay_begins_in_a_deleted_file_is_a_problem(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST, append(3))
    snapshot_file(root, section(head_seq=3, as_of=(2, RECORD)), redo_from=(1, 0))
    wal_file(root, 1).unlink()
    code, output = verify(root)
    assert (code, "begins in file 1 of shard 0, which is gone" in output) == (WRONG, True)


def test_a_trimmed_log_is_no_problem(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST, append(3))
    snapshot_file(root, section(head_seq=3, as_of=(2, RECORD)), redo_from=(2, 0))
    wal_file(root, 1).unlink()
    assert verify(root)[0] == OK


@pytest.mark.parametrize("content", [b"", b"1\nc\n", b"\xff", b"one\nc\n1\n", b"3\nc\n1\n"])
def test_an_unusable_format_file_is_a_problem(verify: Verify, root: Path, content: bytes) -> None:
    data_dir(root, FIRST)
    (root / "FORMAT").write_bytes(content)
    code, output = verify(root)
    assert (code, "PROBLEM: FORMAT" in output) == (WRONG, True)


def test_a_missing_shard_is_a_problem(verify: Verify, root: Path) -> None:
    data_dir(root, shards=2)
    folder = root / "wal" / "shard-00"
    folder.mkdir()
    (folder / layout.wal_name(1)).write_bytes(FIRST)
    code, output = verify(root)
    assert (code, "PROBLEM: wal/shard-01: The log of this shard is missing" in output) == (WRONG, True)


def test_the_log_of_no_shard_is_a_problem(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    stray = root / "wal" / "shard-01"
    stray.mkdir()
    (stray / layout.wal_name(1)).write_bytes(FIRST)
    code, output = verify(root)
    assert (code, "this folder belongs to none of them" in output) == (WRONG, True)


@pytest.mark.parametrize("name", ["notes.txt", "wal/wal-1.log", "wal/wal-0000000000000001.log.bak", "meta/old.bin"])
def test_a_foreign_file_is_noted(verify: Verify, root: Path, name: str) -> None:
    data_dir(root, FIRST)
    (root / name).write_text("hello")
    code, output = verify(root)
    assert (code, f"note: {name}: This file does not belong" in output) == (OK, True)


def test_a_file_half_written_is_noted(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    (root / "meta" / f"{layout.snapshot_name(3)}.tmp").write_bytes(b"half")
    code, output = verify(root)
    assert (code, "snapshot-0000000000000003.bin.tmp: The writing of this file was interrupted" in output) == (OK, True)


def test_files_in_quarantine_are_noted(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    (root / "quarantine").mkdir()
    (root / "quarantine" / "tail.bin").write_bytes(b"12345")
    code, output = verify(root)
    assert (code, "note: quarantine/tail.bin: Recovery moved 5 bytes here." in output) == (OK, True)


def test_a_reserve_with_content_is_noted(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    (root / "wal" / "reserve").write_bytes(bytes(100) + b"x")
    code, output = verify(root)
    assert (code, "The reserve is not empty" in output) == (OK, True)


def test_verify_writes_no_file_and_takes_no_lock(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST_SYNCED + b"torn")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    (root / ".lock").chmod(0o400)
    verify(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_missing_reserve_is_noted(verify: Verify, root: Path) -> None:
    data_dir(root, FIRST)
    (root / "wal" / "reserve").unlink()
    code, output = verify(root)
    assert (code, "note: wal/reserve: There is no reserve" in output) == (OK, True)


class LiveFileSystem(PosixFileSystem):
    """Lets a broker do something just before a certain file is first opened."""

    def __init__(self, name: str, meanwhile: Callable[[], None]) -> None:
        self._name = name
        self._meanwhile: Callable[[], None] | None = meanwhile

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> PosixFile:
        if self._meanwhile is not None and path.endswith(self._name):
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return super().open(path, create=create, exclusive=exclusive, write=write)


def live(root: Path, file: int, meanwhile: Callable[[], None]) -> list[Finding]:
    """The findings if something happens just before the given file is opened."""
    findings: list[Finding] = []
    fs = LiveFileSystem(layout.wal_name(file), meanwhile)
    run_verify(DataDirectory(fs, str(root)), findings.append)
    return findings


def test_a_file_finished_during_its_check_is_no_damage(root: Path) -> None:
    data_dir(root, FIRST + bytes(1000), append(4))
    assert live(root, 2, lambda: void(wal_file(root, 1).write_bytes(FIRST + append(3)))) == []


def test_files_trimmed_during_their_check_are_no_damage(root: Path) -> None:
    data_dir(root, FIRST, append(3), append(4), append(5))

    def trim() -> None:
        wal_file(root, 1).unlink()
        wal_file(root, 2).unlink()

    assert live(root, 2, trim) == []


def test_a_file_that_vanishes_from_the_middle_is_a_problem(root: Path) -> None:
    data_dir(root, FIRST, append(3), append(4))
    findings = live(root, 2, wal_file(root, 2).unlink)
    assert "vanished" in findings[0].text


def test_progress_comes_to_all_bytes(root: Path) -> None:
    data_dir(root, FIRST, append(3) + bytes(500))
    seen: list[tuple[int, int]] = []
    run_verify(DataDirectory(PosixFileSystem(), str(root)), lambda _: None, lambda *done: seen.append(done))
    assert seen[-1] == (len(FIRST) + RECORD + 500,) * 2


def void(_: object) -> None:
    """Drop a result."""


def resealed(frame: bytes, data: bytes) -> bytes:
    """The control frame with other data and a correct checksum."""
    decoded = wal_frames.decode(frame)
    return wal_frame.encode(decoded.type, decoded.flags, decoded.topic_id, 0, decoded.ts, data=data)


def test_the_snapshot_helper_writes_a_readable_snapshot(root: Path) -> None:
    data_dir(root, FIRST)
    path = snapshot_file(root, section(head_seq=2, as_of=(1, len(FIRST))))
    assert snapshot.decode(path.read_bytes()).shards == 1


def test_a_consumer_beyond_the_last_seq_is_named(tmp_path: Path, verify: Verify) -> None:
    value = control.Consumer(consumer_id=9, name="c", event="put", config={}, seq=3)
    code, out = verify(data_dir(tmp_path, FIRST + controlled(value)))
    assert code == WRONG
    assert "Consumer c of topic 1 (orders) is at seq 3, beyond the last seq 2." in out
    value = control.Consumer(consumer_id=9, name="c", event="cursor", seq=2)
    assert "Consumer" not in verify(data_dir(tmp_path / "fine", FIRST + controlled(value)))[1]
