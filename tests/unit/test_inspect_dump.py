"""`python -m storage dump`: the log's contents, as text and as JSON."""

from __future__ import annotations

import datetime
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.__main__ import main
from storage.format import control
from storage.inspect.text import flag_letters, utc_text
from tests.unit.format.hand_written import (
    LOG,
    append,
    batch,
    controlled,
    create,
    data_dir,
    section,
    snapshot_file,
    sync_point,
    unknown_type,
    wal_file,
)

RECORD = len(append(1))
LONG = '{"data":"' + "x" * 200 + '"}'


class Dump:
    """Runs the command and keeps its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, root: Path, *arguments: str) -> str:
        self._capsys.readouterr()
        assert main(["dump", str(root), *arguments]) == 0
        return self._capsys.readouterr().out

    def json(self, root: Path, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(root, "--json", *arguments).splitlines()]

    def frames(self, root: Path, *arguments: str) -> list[dict[str, Any]]:
        return [line for line in self.json(root, *arguments) if line["kind"] == "frame"]


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    return Dump(capsys)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    first = create() + append(1, '{"data":1.10,"meta":{}}', node=b"w-1", tag=b"red")
    first += batch(append(2), append(3, LONG), first_seq=2, key="k-1", hash=bytes(16))
    first += sync_point(len(first))
    second = create("jobs", topic_id=2) + append(1, topic_id=2) + controlled(control.Delete(bound_head=3, before_seq=2))
    return data_dir(tmp_path / "data", first, second + bytes(100))


def test_every_frame_has_a_line_with_its_offset_and_content(dump: Dump, root: Path) -> None:
    lines = dump(root).splitlines()
    header, frame = next(
        (above, line) for above, line in itertools.pairwise(lines) if "TopicCreate" in line and "orders" in line
    )
    assert header.split() == ["offset", "bytes", "type", "flags", "topic", "seq", "time", "(UTC)", "data"]
    assert frame.split()[:8] == [
        "0",
        str(len(create())),
        "TopicCreate",
        "d",
        "1",
        "orders",
        "-",
        "2025-08-12T12:00:00.000Z",
    ]
    assert '"durability":"fsync"' in frame


def test_a_record_shows_node_tag_and_data(dump: Dump, root: Path) -> None:
    assert " tnd   1 orders                      1  " in dump(root)
    assert 'node=w-1 tag=red {"data":1.10,"meta":{}}' in dump(root)


def test_long_data_is_shortened_unless_asked_for(dump: Dump, root: Path) -> None:
    assert LONG not in dump(root)
    assert f"… ({len(LONG)} bytes)" in dump(root)
    assert LONG in dump(root, "--data")


def test_the_end_of_each_file_is_described(dump: Dump, root: Path) -> None:
    output = dump(root)
    assert "end: the file ends with its last frame" in output
    assert "end: zeros follow" in output


def test_a_torn_end_is_reported_as_not_a_frame(dump: Dump, root: Path) -> None:
    wal_file(root, 2).write_bytes(append(4)[:-1])
    assert "0 end: the next frame is incomplete: it would exceed the file" in dump(root)


def test_each_json_line_is_complete(dump: Dump, root: Path) -> None:
    frame = dump.frames(root)[1]
    assert frame == {
        "kind": "frame",
        "file": "wal/wal-0000000000000001.log",
        "shard": 0,
        "offset": len(create()),
        "size": RECORD + len(b'w-1red.10,"meta":{}'),
        "type": 1,
        "type_name": "Append",
        "flags": 7,
        "topic_id": LOG,
        "topic": "orders",
        "seq": 1,
        "ts": 1_755_000_000_000,
        "node": "w-1",
        "tag": "red",
        "data_len": 23,
    }


def test_json_has_the_control_map_with_bytes_as_hex(dump: Dump, root: Path) -> None:
    opening = next(frame for frame in dump.frames(root) if frame["type_name"] == "Batch")
    assert opening["control"]["key"] == "k-1"
    assert opening["control"]["hash"] == "00" * 16


def test_json_has_records_when_asked_for(dump: Dump, root: Path) -> None:
    assert dump.frames(root, "--data")[1]["data"] == '{"data":1.10,"meta":{}}'


def test_json_tells_the_end_of_each_file(dump: Dump, root: Path) -> None:
    ends = [line for line in dump.json(root) if line["kind"] == "end"]
    assert [(end["file"][-5], end["reason"]) for end in ends] == [("1", ""), ("2", "zero")]


@pytest.mark.parametrize("topic", ["jobs", "2"])
def test_a_topic_is_selected_by_name_or_id(dump: Dump, root: Path, topic: str) -> None:
    frames = dump.frames(root, "--topic", topic)
    assert [(frame["topic"], frame["type_name"]) for frame in frames] == [("jobs", "TopicCreate"), ("jobs", "Append")]


def test_a_topic_without_its_create_frame_is_named_by_the_snapshot(dump: Dump, root: Path) -> None:
    wal_file(root, 1).unlink()
    snapshot_file(root, section(head_seq=3, as_of=(2, 0)), redo_from=(2, 0))
    assert [frame["type_name"] for frame in dump.frames(root, "--topic", "orders")] == ["Delete"]


def test_an_unknown_topic_shows_no_frame(dump: Dump, root: Path) -> None:
    assert dump(root, "--topic", "nobody") == ""


@pytest.mark.parametrize("name", ["wal/wal-0000000000000002.log", "wal-0000000000000002.log", "*2.log"])
def test_a_file_is_selected_by_name_or_pattern(dump: Dump, root: Path, name: str) -> None:
    assert {frame["file"] for frame in dump.frames(root, "--file", name)} == {"wal/wal-0000000000000002.log"}


def test_snapshots_are_shown_with_their_sections(dump: Dump, root: Path) -> None:
    snapshot_file(root, section(head_seq=3, as_of=(1, 100)))
    output = dump(root)
    assert "  redo_from: [[1,0]]" in output
    assert '  log 1 orders: {"topic_id":1,"name":"orders"' in output
    assert [line["head_seq"] for line in dump.json(root) if line["kind"] == "section"] == [3]


def test_a_damaged_snapshot_is_shown_as_unusable(dump: Dump, root: Path) -> None:
    snapshot_file(root).write_bytes(b"TSNP")
    assert "not usable: 4 bytes are too few" in dump(root)
    assert {"kind": "snapshot", "valid": False}.items() <= next(
        line.items() for line in dump.json(root) if line["kind"] == "snapshot"
    )


def test_a_type_of_a_newer_version_is_shown_by_number(dump: Dump, root: Path) -> None:
    wal_file(root, 2).write_bytes(unknown_type(99))
    assert "type 99" in dump(root)


def test_control_characters_are_escaped_for_terminals(dump: Dump, root: Path) -> None:
    wal_file(root, 2).write_bytes(append(4, tag=b"\x1b[2J", node="\u009b1m".encode()))
    output = dump(root)
    assert "\x1b" not in output
    assert "tag=\\u001b[2J" in output
    assert dump.frames(root)[-1]["tag"] == "\x1b[2J"


def test_bytes_outside_utf8_are_escaped(dump: Dump, root: Path) -> None:
    wal_file(root, 2).write_bytes(append(4, tag=b"\xff\xfe"))
    assert "tag=\\xff\\xfe" in dump(root)


@pytest.mark.parametrize(
    ("flags", "letters"), [(0, "-"), (7, "tnd"), (12, "dm"), (16, "b"), (4 | 3 << 5, "d3"), (7 << 5, "7")]
)
def test_flags_are_letters(flags: int, letters: str) -> None:
    assert flag_letters(flags) == letters


@given(st.datetimes(min_value=datetime.datetime(1970, 1, 1), timezones=st.just(datetime.UTC)))
def test_times_are_shown_in_utc(moment: datetime.datetime) -> None:
    ts_ms = (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)
    assert utc_text(ts_ms) == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_a_time_outside_the_calendar_is_shown_as_a_number() -> None:
    assert utc_text((1 << 64) - 1) == "18446744073709551615"


def test_the_output_can_be_cut_short(root: Path) -> None:
    wal_file(root, 1).write_bytes(create() + b"".join(append(seq) for seq in range(1, 5000)))
    command = [sys.executable, "-m", "storage", "dump", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
