"""`python -m storage dump|verify` on segments: every byte is checked, and what belongs to no log is reported."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.__main__ import main
from storage.format import control, segment_frame
from storage.format.idx_entry import ENTRY_SIZE
from storage.inspect.directory import DataDirectory
from storage.inspect.verify import Verdict, verify
from storage.inspect.wal import Finding
from storage.platform.posix import PosixFile, PosixFileSystem
from storage.segments import names
from storage.segments.names import SegmentId
from storage.state.manifest import SegmentState
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
from tests.unit.format.hand_written import append, controlled, create, section, snapshot_file, wal_file
from tests.unit.test_inspect_verify import LiveFileSystem

SEALED = SegmentId(1, 1)
ACTIVE = SegmentId(1, 5)
#: Turns a live delete byte into a deleted one, and back.
DELETE_BITS = segment_frame.LIVE ^ segment_frame.DELETED


def found(root: Path, fs: PosixFileSystem | None = None) -> tuple[Verdict, list[Finding]]:
    findings: list[Finding] = []
    return verify(DataDirectory(fs or PosixFileSystem(), str(root)), findings.append), findings


def problems(root: Path) -> list[str]:
    return [f"{each.path.rpartition('/')[2]} {each.offset}: {each.text}" for each in found(root)[1] if each.problem]


def notes(root: Path) -> list[str]:
    """The notes; there must be no problems."""
    _, findings = found(root)
    assert not any(each.problem for each in findings), findings
    return [f"{each.path}: {each.text}" for each in findings]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    segmented(tmp_path / "data")
    return tmp_path / "data"


def change(path: Path, offset: int, mask: int) -> None:
    """XOR a byte of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)


def test_sound_segments_are_counted(root: Path) -> None:
    verdict, findings = found(root)
    assert findings == []
    assert verdict.summary().endswith(f"2 segments (5 records, {sum(map(len, FRAMES.values()))} bytes)")


@pytest.mark.parametrize("id", [SEALED, ACTIVE], ids=["sealed", "active"])
@pytest.mark.parametrize("ending", [names.DATA, names.IDX])
@pytest.mark.parametrize("mask", [0x01, 0x80, DELETE_BITS, 0xFF])
def test_a_flipped_byte_anywhere_is_a_problem(root: Path, id: SegmentId, ending: str, mask: int) -> None:
    path = segment_path(root, id, ending)
    for offset in range(path.stat().st_size):
        change(path, offset, mask)
        verdict, findings = found(root)
        assert verdict.wrong, offset
        assert all(str(path).rpartition(".")[0].endswith(each.path.rpartition(".")[0]) for each in findings), findings
        change(path, offset, mask)
    assert found(root)[1] == []


def test_a_flipped_byte_of_a_tag_file_is_noted(root: Path) -> None:
    path = segment_path(root, SEALED, names.TAG)
    for offset in range(path.stat().st_size):
        change(path, offset, 0x40)
        assert [note.partition(":")[0] for note in notes(root)] == [str(path.relative_to(root))]
        change(path, offset, 0x40)


def test_damage_names_its_record_and_the_rest_is_checked(root: Path) -> None:
    change(segment_path(root, SEALED), 40, 1)
    [text] = problems(root)
    assert text.startswith("seg-00000000000000000001.data 0: The frame of seq 1 is damaged: checksum mismatch.")
    assert found(root)[0].segment_records == 4


def test_a_damaged_entry_costs_no_record(root: Path) -> None:
    change(segment_path(root, SEALED, names.IDX), ENTRY_SIZE * 2 + 3, 1)
    [text] = problems(root)
    assert text.startswith(f"seg-00000000000000000001.idx {2 * ENTRY_SIZE}: The entry of seq 3 fails its check.")
    assert found(root)[0].segment_records == 5


def test_a_damaged_entry_and_its_damaged_frame_are_both_named(root: Path) -> None:
    change(segment_path(root, SEALED, names.IDX), 3, 1)
    change(segment_path(root, SEALED), 40, 1)
    first, second = problems(root)
    assert first.startswith("seg-00000000000000000001.idx 0: The entry of seq 1 fails its check.")
    assert second.startswith("seg-00000000000000000001.data 0: The frame of seq 1 or of a later seq is damaged")
    assert found(root)[0].segment_records == 4


def test_two_swapped_records_are_a_problem(root: Path) -> None:
    path = segment_path(root, ACTIVE)
    content = path.read_bytes()
    path.write_bytes(content[len(FRAMES[5]) :] + content[: len(FRAMES[5])])
    assert [text.partition(",")[0] for text in problems(root)] == [
        "seg-00000000000000000005.data 0: The frame must have (bytes",
        f"seg-00000000000000000005.data {len(FRAMES[5])}: The frame must have (bytes",
    ]


@pytest.mark.parametrize("ending", [names.DATA, names.IDX])
@pytest.mark.parametrize("id", [SEALED, ACTIVE], ids=["sealed", "active"])
def test_a_missing_file_is_a_problem(root: Path, id: SegmentId, ending: str) -> None:
    path = segment_path(root, id, ending)
    path.unlink()
    assert [text for text in problems(root) if text.startswith(f"{path.name} None: The file is missing")]


@pytest.mark.parametrize("ending", [names.DATA, names.IDX])
@pytest.mark.parametrize("id", [SEALED, ACTIVE], ids=["sealed", "active"])
def test_every_truncation_is_a_problem(root: Path, id: SegmentId, ending: str) -> None:
    path = segment_path(root, id, ending)
    content = path.read_bytes()
    for size in range(len(content)):
        os.truncate(path, size)
        assert any(text.startswith(path.name) for text in problems(root)), size
        path.write_bytes(content)


@pytest.mark.parametrize("ending", [names.DATA, names.IDX])
@pytest.mark.parametrize("id", [SEALED, ACTIVE], ids=["sealed", "active"])
def test_bytes_behind_the_marked_length_are_noted(root: Path, id: SegmentId, ending: str) -> None:
    path = segment_path(root, id, ending)
    path.write_bytes(path.read_bytes() + bytes(7))
    [note] = notes(root)
    assert note.startswith(f"{path.relative_to(root)}: 7 bytes follow the marked end.")


def test_a_deletion_not_yet_in_the_files_is_no_problem(tmp_path: Path) -> None:
    root = tmp_path / "data"
    segmented(root, log(end=controlled(control.Delete(bound_head=7, match=["tag", "Glob", "re*"]))))
    assert notes(root) == []
    change(segment_path(root, SEALED), len(FRAMES[1]) - 1, DELETE_BITS)
    [note] = notes(root)
    assert "The frame of seq 1 is flagged as deleted, but its index entry is not yet" in note


@pytest.mark.parametrize(
    "delete",
    [
        control.Delete(bound_head=0, match=["tag", "Eq", "red"]),
        control.Delete(bound_head=7, match=["tag", "Eq", "blue"]),
        control.Delete(bound_head=7, before_seq=1, match=["tag", "Eq", "red"]),
        control.Delete(bound_head=7, seqs=[3, 4]),
    ],
)
def test_a_delete_byte_without_a_deletion_is_a_problem(tmp_path: Path, delete: control.Delete) -> None:
    root = tmp_path / "data"
    segmented(root, log(end=controlled(delete)))
    change(segment_path(root, SEALED), len(FRAMES[1]) - 1, DELETE_BITS)
    assert "The delete byte of seq 1 says that it is deleted, but the index says that it is not." in problems(root)[0]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("topics/0000000000000001/seg-00000000000000000001.1.data", "has no such segment"),
        ("topics/0000000000000001/seg-00000000000000000009.idx", "has no such segment"),
        ("topics/0000000000000001/seg-00000000000000000001.tag.tmp", "The writing of this file was interrupted"),
        ("topics/0000000000000001/notes.txt", "This file does not belong"),
        ("topics/0000000000000009/seg-00000000000000000001.data", "No topic has this id"),
        ("topics/notes/a.txt", "This does not belong"),
    ],
)
def test_files_outside_every_manifest_are_noted(root: Path, name: str, sentence: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_bytes(b"hello")
    [note] = notes(root)
    assert name.startswith(note.partition(":")[0])
    assert sentence in note


def test_the_folder_of_a_deleted_topic_is_noted(tmp_path: Path) -> None:
    root = tmp_path / "data"
    segmented(root, log(end=controlled(control.TopicDelete(name="orders"))))
    assert notes(root) == [
        "topics/0000000000000001: The topic is deleted. The broker or the next start removes its folder."
    ]


def test_a_dropped_segment_is_not_missed(tmp_path: Path) -> None:
    root = tmp_path / "data"
    segmented(root, log(end=segment_event("dropped", data_bytes=SEALED_BYTES)))
    assert {note.partition(":")[0][-4:] for note in notes(root)} == {"data", ".idx", ".tag"}
    for ending in (names.DATA, names.IDX, names.TAG):
        segment_path(root, SEALED, ending).unlink()
    assert notes(root) == []


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"opened": b""}, "but no segment is open"),
        ({"opened_behind": b""}, "but no segment is open"),
        ({"sealed": b""}, "A segment is opened at seq 5, but records are in segments up to seq 4."),
        ({"opened_behind": opened(4)}, "A segment is opened at seq 4"),
        ({"end": segment_event("dropped", first_seq=2, data_bytes=1)}, "that begins with seq 2 is dropped, but"),
        ({"sealed": segment_event("sealed", end_seq=4, data_bytes=SEALED_BYTES)}, "up to seq 3, but it should be"),
        ({"sealed": segment_event("sealed", gen=1, data_bytes=SEALED_BYTES)}, "should be generation 0"),
        (
            {"sealed": segment_event("sealed", data_bytes=SEALED_BYTES - 1)},
            f"end at {SEALED_BYTES}, but according to the log at",
        ),
    ],
)
def test_contradictory_segment_frames_are_a_problem(tmp_path: Path, parts: dict[str, bytes], sentence: str) -> None:
    root = tmp_path / "data"
    segmented(root, log(**parts))
    assert any(sentence in text for text in problems(root)), problems(root)


STATES = [
    SegmentState(first_seq=1, end_seq=5, sealed=True, live=2, live_bytes=5, data_bytes=SEALED_BYTES),
    SegmentState(first_seq=5, end_seq=7, live=2, live_bytes=2),
]


def test_a_snapshot_names_segments_when_the_log_no_longer_does(tmp_path: Path) -> None:
    root = tmp_path / "data"
    segmented(root, append(7))
    kept = section(head_seq=6, as_of=(1, 0), absorbed=6, segments=STATES, live_count=4, live_bytes=7)
    snapshot_file(root, kept)
    assert notes(root) == []
    assert found(root)[0].segments == 2
    segment_path(root, SEALED).unlink()
    assert "The file is missing" in problems(root)[0]


def test_segment_frames_covered_by_a_snapshot_are_not_applied_twice(root: Path) -> None:
    kept = section(
        head_seq=7, as_of=(1, len(log())), absorbed=6, segments=STATES, live_count=5, live_bytes=8, last_ts=0
    )
    snapshot_file(root, kept)
    assert notes(root) == []


def test_a_segment_rewritten_during_its_check_is_no_damage(root: Path) -> None:
    def rewrite() -> None:
        write_segment(root, {1, 4}, first_seq=1, end_seq=5, gen=1)
        gone = len(FRAMES[1]) + len(FRAMES[4])
        wal_file(root).write_bytes(log(end=segment_event("rewritten", gen=1, data_bytes=gone)))
        for ending in (names.DATA, names.IDX, names.TAG):
            segment_path(root, SEALED, ending).unlink()

    verdict, findings = found(root, LiveFileSystem(names.data_name(1, 0), rewrite))
    assert findings == []
    assert verdict.segment_records == 4


def test_a_topic_deleted_during_its_check_is_no_damage(root: Path) -> None:
    def delete() -> None:
        wal_file(root).write_bytes(log(end=controlled(control.TopicDelete(name="orders"))))
        for path in segment_path(root, SEALED).parent.iterdir():
            path.unlink()

    verdict, findings = found(root, LiveFileSystem(names.data_name(1, 0), delete))
    assert not verdict.wrong
    assert [each.path for each in findings] == ["topics/0000000000000001"]


def test_no_file_is_read_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "data"
    body = '{"data":"' + "x" * 60_000 + '"}'
    large = {seq: append(seq, body) for seq in range(1, 101)}
    monkeypatch.setattr("tests.unit.format.hand_segments.FRAMES", large)
    size = sum(map(len, large.values()))
    segmented_log = create() + b"".join(large.values()) + opened(1) + mark(t1=100)
    segmented_log += segment_event("sealed", end_seq=101, data_bytes=size)
    (root / "wal").mkdir(parents=True)
    (root / "FORMAT").write_text("1\nc1\n1\n")
    (root / "wal" / "reserve").write_bytes(b"")
    wal_file(root).write_bytes(segmented_log)
    write_segment(root, large, first_seq=1, end_seq=101)
    sizes: list[int] = []
    pread: Callable[[PosixFile, int, int], bytes] = PosixFile.pread

    def measured(file: PosixFile, count: int, offset: int) -> bytes:
        sizes.append(len(content := pread(file, count, offset)))
        return content

    monkeypatch.setattr(PosixFile, "pread", measured)
    assert notes(root) == []
    assert found(root)[0].segment_records == 100
    assert main(["dump", str(root), "--file", "seg-*"]) == 0
    assert max(sizes) < 2 << 20 < size


def test_dump_shows_frames_about_segments_in_words(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["dump", str(root), "--file", "wal-*"])
    output = capsys.readouterr().out
    assert "in segments: 1 orders up to 4" in output
    assert "segment opened: gen 0 from seq 5 on, empty, 0 live, .data 0 bytes, hot" in output
    assert f"segment sealed: gen 0 of seqs 1 to 4, 2 live (5 bytes), .data {SEALED_BYTES} bytes, hot" in output


def test_dump_shows_the_records_of_segments(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["dump", str(root)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    records = [line for line in lines if len(line) > 2 and line[2] in ("record", "deleted")]
    assert [(line[2], line[6]) for line in records] == [
        ("record", "1"),
        ("deleted", "3"),
        ("record", "4"),
        ("record", "5"),
        ("record", "6"),
    ]


def test_dump_tells_where_a_segment_is_damaged(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(segment_path(root, SEALED), len(FRAMES[1]) + 40, 1)
    main(["dump", str(root), "--file", "seg-00000000000000000001.data"])
    assert f"{len(FRAMES[1])} end: the next bytes are not a frame: checksum mismatch" in capsys.readouterr().out


def test_dump_as_json_has_records_and_marks(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["dump", str(root), "--json", "--data", "--topic", "orders"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    records = [line for line in lines if line["kind"] == "record"]
    assert [(line["seq"], line["deleted"], line["data"]) for line in records][:2] == [
        (1, False, '{"data":1}'),
        (3, True, '{"data":1}'),
    ]
    marks = [line["control"] for line in lines if line.get("type_name") == "CheckpointMark"]
    assert marks == [{"absorbed": {"1": 4}}, {"absorbed": {"1": 6}}]


def test_dump_shows_the_segments_of_a_section(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot_file(root, section(head_seq=7, as_of=(1, 0), absorbed=6, segments=STATES))
    main(["dump", str(root), "--json", "--file", "snapshot-*"])
    [shown] = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if line["kind"] == "section"]
    assert [(each["first_seq"], each["end_seq"], each["sealed"]) for each in shown["segments"]] == [
        (1, 5, True),
        (5, 7, False),
    ]
