"""docs/reference/format.md and the code agree: types, flags, headers, fields, names, causes."""

from __future__ import annotations

import re
import types
import typing
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage import TopicConfig
from storage.format import control, idx_entry, len_file, segment_frame, snapshot_header, tag_file, wal_frame
from storage.format.control import CONTROL
from storage.format.wal_frame import FrameFlag, FrameType
from storage.platform import layout
from storage.records.values import LossCause
from storage.segments import names as segment_names
from storage.segments.names import SegmentId
from storage.segments.tiering.relocation import TopicFile
from storage.snapshot import contents as snapshot
from storage.state.consumers.section import ConsumerSection
from storage.state.consumers.values import ConsumerConfig
from storage.state.manifest import SegmentState
from storage.state.producer_table import ProducerSection
from storage.state.queues.leases import TABLE
from storage.state.queues.section import MovesSection, QueueSection
from storage.state.routers.router import Definition
from storage.state.routers.section import RouterSection
from storage.state.state_table import StatesSection

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
SIZES = {"B": 1, "H": 2, "I": 4, "Q": 8}

Row = dict[str, str]


def section(title: str) -> str:
    """The text below a heading, up to the next heading of any level."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/reference/format.md has no heading {title!r}"
    return found[1]


def tables(title: str) -> list[list[Row]]:
    """The tables of a section, each a list of rows by column name, without backticks."""
    found: list[list[Row]] = []
    for block in re.findall(r"(?:^\|.*\n)+", section(title), re.MULTILINE):
        cells = [
            [cell.strip().replace("`", "") for cell in line.strip("|\n").split("|")] for line in block.splitlines()
        ]
        found.append([dict(zip(cells[0], row, strict=True)) for row in cells[2:]])
    return found


def kind_of(annotation: Any) -> str:
    """The name that docs/reference/format.md uses for the MessagePack kind of a field."""
    if annotation is type(None):
        return "nil"
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(kind_of(each) for each in arguments)
    if origin is list:
        return f"[{kind_of(arguments[0])}]"
    if origin is tuple:
        return f"[{', '.join(kind_of(each) for each in arguments)}]"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)):
        return "map"
    return {int: "u64", str: "text", bytes: "bin", bool: "bool"}.get(annotation, "text")


def kinds(struct: type[msgspec.Struct], *, nil: bool) -> dict[str, str]:
    """Fields of a struct by their name on disk. Without `nil`, None means left out, and is not a kind."""
    fields = {field.encode_name: kind_of(field.type) for field in msgspec.structs.fields(struct)}
    return fields if nil else {name: kind.removesuffix(" or nil") for name, kind in fields.items()}


def test_the_frame_header_is_as_documented() -> None:
    rows = tables("Frames")[0][:9]
    offset = 0
    for row, code in zip(rows, wal_frame.HEADER.format.removeprefix("<"), strict=True):
        assert (row["offset"], row["size"]) == (str(offset), str(SIZES[code])), row["field"]
        offset += SIZES[code]
    assert offset == wal_frame.HEADER_SIZE == int(tables("Frames")[0][9]["offset"])


def test_the_fields_of_the_frame_header_are_in_the_documented_order() -> None:
    names = [row["field"] for row in tables("Frames")[0][:9]]
    values = dict(zip(names, range(1, 10), strict=True))
    values |= {"frame_len": 42 + 7 + 8 + 9, "node_len": 7, "tag_len": 8, "data_len": 9}
    encoded = wal_frame.encode(
        values["type"], values["flags"], values["topic_id"], values["seq"], values["ts"], b"n" * 7, b"t" * 8, b"d" * 9
    )
    header = dict(zip(names, wal_frame.HEADER.unpack_from(encoded), strict=True))
    assert header == {**values, "flags": values["flags"] | 3}


def test_the_frame_types_are_as_documented() -> None:
    documented = {int(row["type"]): row["name"] for row in tables("Frames")[1]}
    assert documented == {int(each): each.name.title().replace("_", "") for each in FrameType}


def test_a_frame_type_is_documented_as_written_if_the_code_can_write_the_type() -> None:
    written = {int(row["type"]) for row in tables("Frames")[1] if row["written since"] == "1"}
    assert written == {int(FrameType.APPEND), *map(int, CONTROL)}


def test_the_flags_are_as_documented() -> None:
    rows = {row["name"]: row["bit"] for row in tables("Frames")[2]}
    hops = rows.pop("hops")
    assert {name: 1 << int(bit) for name, bit in rows.items()} == {
        flag.name.lower(): int(flag) for flag in FrameFlag if flag.name
    }
    assert hops == f"{wal_frame.HOP_SHIFT}-7"


def test_the_smallest_frame_is_as_documented() -> None:
    assert f"smallest frame has {wal_frame.OVERHEAD} bytes" in section("Frames")
    assert f"exactly {wal_frame.FIXED_LEN} + node_len" in section("Frames")


@pytest.mark.parametrize("type_", sorted(CONTROL), ids=lambda type_: type_.name)
def test_control_fields_are_as_documented(type_: FrameType) -> None:
    rows = tables(type_.name.title().replace("_", ""))[0]
    struct = CONTROL[type_]
    assert {row["field"]: row["type"] for row in rows} == kinds(struct, nil=False)
    always = {row["field"] for row in rows if row["present"] == "always"}
    assert always == {field.encode_name for field in msgspec.structs.fields(struct) if field.required}


def test_causes_are_as_documented() -> None:
    assert [row["cause"] for row in tables("EvictWatermark")[1]] == [str(cause) for cause in LossCause]


def test_the_topic_config_is_as_documented() -> None:
    documented = {
        row["field"]: row["type"].partition(":")[0].replace("integer", "u64") for row in tables("Topic config")[0]
    }
    assert documented == kinds(TopicConfig, nil=True)


def test_the_values_of_settings_are_as_documented() -> None:
    for field in msgspec.structs.fields(TopicConfig):
        if isinstance(field.type, type) and hasattr(field.type, "__members__"):
            row = next(row for row in tables("Topic config")[0] if row["field"] == field.name)
            assert row["type"] == f"text: {', '.join(str(value) for value in field.type)}"


def test_the_snapshot_header_is_as_documented() -> None:
    rows = tables("Snapshots")[0]
    assert [(row["offset"], row["size"]) for row in rows[:4]] == [("0", "4"), ("4", "4"), ("8", "8"), ("16", "8")]
    assert int(rows[4]["offset"]) == snapshot_header.HEADER_SIZE
    assert rows[0]["meaning"] == snapshot_header.MAGIC.decode()
    assert rows[1]["meaning"] == str(snapshot_header.VERSION)
    sealed = snapshot_header.seal(b"body")
    assert (sealed[:4], sealed[4:8], sealed[8:16]) == (b"TSNP", b"\1\0\0\0", b"\4" + bytes(7))


def test_the_segment_frame_is_as_documented() -> None:
    rows = tables("Segment data")[0]
    offset = 0
    for row, code in zip(rows[:8], segment_frame.HEADER.format.removeprefix("<"), strict=True):
        assert (row["offset"], row["size"]) == (str(offset), str(SIZES[code])), row["field"]
        offset += SIZES[code]
    assert int(rows[8]["offset"]) == offset == segment_frame.HEADER_SIZE
    assert [int(row["size"]) for row in rows[11:]] == [8, 1]
    assert f"0x{segment_frame.LIVE:02X}: live. 0x{segment_frame.DELETED:02X}: deleted." in rows[12]["meaning"]
    assert f"the smallest has {segment_frame.OVERHEAD}." in section("Segment data")


def test_the_fields_of_the_segment_frame_are_in_the_documented_order() -> None:
    values = {"frame_len": 42 + 7 + 8 + 9, "flags": 3, "topic_id": 4, "seq": 5, "ts": 6}
    values |= {"node_len": 7, "tag_len": 8, "data_len": 9}
    in_log = wal_frame.encode(FrameType.APPEND, 0, 4, 5, 6, b"n" * 7, b"t" * 8, b"d" * 9)
    frame = segment_frame.from_wal(in_log, 0, len(in_log))
    names = [row["field"] for row in tables("Segment data")[0][:8]]
    assert dict(zip(names, segment_frame.HEADER.unpack_from(frame), strict=True)) == values
    assert len(frame) == values["frame_len"] + 4


def test_the_index_entry_is_as_documented() -> None:
    rows = tables("Segment index")[0]
    values = {"offset": 0x01020304, "len": 0x05060708, "ts": 0x1112131415161718, "flags": 7}
    entry = idx_entry.pack(*values.values())
    assert f"`.idx` has {idx_entry.ENTRY_SIZE} bytes for every seq" in section("Segment index")
    end = 0
    for row, (name, value) in zip(rows[:4], values.items(), strict=True):
        offset, size = int(row["offset"]), int(row["size"])
        assert (row["field"], offset) == (name, end)
        end = offset + size
        assert entry[offset:end] == value.to_bytes(size, "little"), name
    assert (int(rows[4]["offset"]), int(rows[4]["size"])) == (end, idx_entry.ENTRY_SIZE - end)


def test_the_index_flags_are_as_documented() -> None:
    documented = {row["name"]: 1 << int(row["bit"]) for row in tables("Segment index")[1]}
    assert documented == {
        "has_tag": idx_entry.HAS_TAG,
        "has_node": idx_entry.HAS_NODE,
        "deleted": idx_entry.DELETED,
    }


def test_the_tag_file_header_is_as_documented() -> None:
    rows = tables("Tag files")[0]
    offset = 0
    for row, size in zip(rows[:9], (4, *(SIZES[code] for code in "IQQQIIQ"), 8), strict=True):
        assert (row["offset"], row["size"]) == (str(offset), str(size)), row["field"]
        offset += size
    assert int(rows[9]["offset"]) == offset == tag_file.HEADER_SIZE
    assert (rows[0]["meaning"], rows[1]["meaning"]) == (tag_file.MAGIC.decode(), str(tag_file.VERSION))


def test_the_fields_of_the_tag_file_header_are_in_the_documented_order() -> None:
    names = [row["field"] for row in tables("Tag files")[0][:8]]
    content = tag_file.encode(5, 9, 777, [(b"ab", 6), (b"ab", 7), (b"c", 8)])
    assert dict(zip(names, tag_file.PREFIX.unpack_from(content), strict=True)) == {
        "magic": tag_file.MAGIC,
        "version": tag_file.VERSION,
        "first_seq": 5,
        "data_bytes": 777,
        "gen": 9,
        "tags": 2,
        "entries": 3,
        "tag_bytes": 3,
    }
    assert tag_file.PREFIX.format.removeprefix("<") == "4sIQQQIIQ"


def test_the_len_file_header_is_as_documented() -> None:
    rows = tables("Len files")[0]
    offset = 0
    for row, size in zip(rows[:7], (4, *(SIZES[code] for code in "IQQQI"), 8), strict=True):
        assert (row["offset"], row["size"]) == (str(offset), str(size)), row["field"]
        offset += size
    assert int(rows[7]["offset"]) == offset == len_file.HEADER_SIZE
    assert (rows[0]["meaning"], rows[1]["meaning"]) == (len_file.MAGIC.decode(), str(len_file.VERSION))
    content = len_file.encode(5, 9, 777, array("I", [1, 2]))
    documented = [row["field"] for row in rows[:6]]
    assert dict(zip(documented, len_file.PREFIX.unpack_from(content), strict=True)) == {
        "magic": len_file.MAGIC,
        "version": len_file.VERSION,
        "first_seq": 5,
        "data_bytes": 777,
        "gen": 9,
        "count": 2,
    }


def test_the_keys_of_topic_json_are_as_documented() -> None:
    documented = [key.strip() for row in tables("Cold tier")[0] for key in row["key"].split(",")]
    assert documented == [field.name for field in msgspec.structs.fields(TopicFile)]


@pytest.mark.parametrize(
    ("title", "table", "struct"),
    [
        ("Snapshot body", 0, snapshot.Body),
        ("Snapshot section", 0, snapshot.Section),
        ("Snapshot section", 1, SegmentState),
        ("Snapshot section", 2, snapshot.Keys),
        ("Queue in a snapshot", 0, QueueSection),
        ("Queue in a snapshot", 1, MovesSection),
        ("Routers in a snapshot", 0, RouterSection),
        ("Consumers in a snapshot", 0, ConsumerSection),
        ("Producers in a snapshot", 0, ProducerSection),
        ("States in a snapshot", 0, StatesSection),
    ],
)
def test_snapshot_fields_are_as_documented(title: str, table: int, struct: type[msgspec.Struct]) -> None:
    documented = {row["field"]: row["type"] for row in tables(title)[table]}
    assert documented == kinds(struct, nil=True)


def test_the_definition_of_a_router_is_as_documented() -> None:
    documented = {row["key"]: row["type"].partition(":")[0] for row in tables("RouterCreate")[1]}
    assert documented == kinds(Definition, nil=True)


def test_the_config_of_a_consumer_is_as_documented() -> None:
    documented = {row["key"]: row["type"].partition(":")[0] for row in tables("Consumer")[2]}
    assert documented == kinds(ConsumerConfig, nil=True)


def test_defaults_of_a_segment_in_a_snapshot_are_as_documented() -> None:
    documented = {row["field"]: row["default"] for row in tables("Snapshot section")[1] if row["default"]}
    fields = msgspec.structs.fields(SegmentState)
    assert documented == {field.encode_name: str(field.default).lower() for field in fields if not field.required}


def test_the_optional_fields_of_a_section_are_documented_as_optional() -> None:
    documented = {row["field"] for row in tables("Snapshot section")[0] if "left out" in row["meaning"]}
    assert documented == {field.name for field in msgspec.structs.fields(snapshot.Section) if not field.required}


def test_the_events_of_a_segment_are_as_documented() -> None:
    rows = {row["event"]: row["what has happened"] for row in tables("Segment")[1]}
    files = [ROOT / "storage" / "state" / "manifest.py", *(ROOT / "storage" / "segments").rglob("*.py")]
    sources = "".join(path.read_text(encoding="utf-8") for path in files)
    written = set(re.findall(r'\bevent="(\w+)"|\.frame\("(\w+)"', sources))
    assert {one or other for one, other in written} == {
        event for event, text in rows.items() if "not written by this version" not in text
    }
    assert control.Segment.__doc__ is not None
    assert f"`event` is {', '.join([*rows][:-1])} or {[*rows][-1]}." in control.Segment.__doc__


def test_the_events_of_a_lease_are_as_documented() -> None:
    rows = {row["event"]: row["what has happened"] for row in tables("Lease")[1]}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "storage" / "queues").glob("*.py"))
    assert rows.keys() == TABLE.keys() | {"acked"}
    assert set(re.findall(r'Lease\(\s*event="(\w+)"', sources)) == {
        event for event, text in rows.items() if "not written by this version" not in text
    }


def test_every_documented_control_frame_is_a_frame_type() -> None:
    below = DOCUMENT[DOCUMENT.index("## Control frames") : DOCUMENT.index("## Log files")]
    names = set(re.findall(r"^### (\w+)$", below, re.MULTILINE))
    assert names == {type_.name.title().replace("_", "") for type_ in CONTROL}


def test_file_names_are_as_documented() -> None:
    names = " ".join(row["name"] for row in tables("Directory")[0]).replace(",", "").split()
    assert layout.join("meta", layout.snapshot_name(1)) in names
    assert layout.join("wal", layout.wal_name(1)) in names
    assert layout.join(layout.shard_dir("", 0, 2).lstrip("/"), layout.wal_name(1)) in names
    assert {
        layout.FORMAT,
        layout.LOCK,
        f"wal/{layout.CURRENT}",
        f"wal/{layout.RESERVE}",
        f"*{layout.TMP_SUFFIX}",
    } <= set(names)
    segment = SegmentId(7, 41)
    assert {
        segment_names.path("", id, ext).lstrip("/")
        for id, ext in (
            (segment, "data"),
            (segment._replace(gen=2), "data"),
            (segment, "idx"),
            (segment, "tag"),
            (segment, "len"),
            (segment._replace(gen=2), "zdata"),
        )
    } <= set(names)
    assert layout.quarantine_name(0, 1, 4096, "<16 hex digits>") in section("Directory").replace("`", "")


def test_the_format_version_is_as_documented() -> None:
    assert f"Format version: {layout.FORMAT_VERSION}." in DOCUMENT
    assert f"Format version {layout.PACKED_FORMAT_VERSION} is" in DOCUMENT
