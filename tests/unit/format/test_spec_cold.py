"""The independent decoder compares the cold tier with the log, the index and topic.json."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from xxhash import xxh3_64_intdigest

from storage import Engine, Options, ReadQuery
from storage.format import control, idx_entry, len_file
from storage.segments import names
from storage.segments.names import SegmentId
from storage.state.manifest import SegmentState
from tests.support.spec_decoder import SpecViolation, read_data_dir
from tests.support.spec_len import decode_len_file
from tests.unit.format.hand_segments import SEALED_BYTES, log, segment_event, segment_path, segmented
from tests.unit.format.hand_written import controlled, flip, section, snapshot_file

SEALED = SegmentId(1, 1)
#: Payloads of seqs 1 to 4: `1`, no record, `1` deleted, `1.10`.
PAYLOADS = [1, 0, 1, 4]


def moved() -> bytes:
    """The frame that says so."""
    return segment_event("tier", data_bytes=SEALED_BYTES, tier="cold")


class Tiers:
    """The directory of `hand_segments`, with its sealed segment in a cold store beside it."""

    def __init__(self, parent: Path, frames: bytes | None = None) -> None:
        self.root, self.cold = parent / "data", parent / "cold"
        segmented(self.root, log(end=moved()) if frames is None else frames)
        self.cluster_id = (self.root / "FORMAT").read_text().split("\n")[1]
        self.folder = self.cold / self.cluster_id / "topics" / f"{1:016x}"
        self.folder.mkdir(parents=True)
        for ending in (names.DATA, names.IDX):
            self.there(ending).write_bytes(self.here(ending).read_bytes())
        self.here(names.DATA).unlink()
        self.here(names.LEN).write_bytes(len_file.encode(1, 0, SEALED_BYTES, array("I", PAYLOADS)))
        self.topic_file()

    def here(self, ending: str) -> Path:
        return segment_path(self.root, SEALED, ending)

    def there(self, ending: str) -> Path:
        return self.folder / names.file_name(SEALED.first_seq, SEALED.gen, ending)

    def topic_file(self, **changed: Any) -> None:
        fields: dict[str, Any] = {
            "cluster_id": self.cluster_id,
            "name": "orders",
            "partition": 0,
            "partitions": 1,
            "epoch": 1,
            "floors": {},
            "loss": [],
            "segments": [{"first_seq": 1, "end_seq": 5, "gen": 0}],
            "end_seq": 5,
        }
        (self.folder / "topic.json").write_bytes(msgspec.json.encode(fields | changed))

    def read(self) -> Any:
        return read_data_dir(self.root, self.cold)

    def refused(self, reason: str) -> None:
        with pytest.raises(SpecViolation, match=re.escape(reason)):
            self.read()


@pytest.fixture
def tiers(tmp_path: Path) -> Tiers:
    return Tiers(tmp_path)


def test_a_topic_is_read_from_segments_in_both_tiers(tiers: Tiers) -> None:
    decoded = tiers.read()
    found = decoded.topics["orders"]
    assert [*found.records] == [1, 4, 5, 6, 7]
    assert (found.records[1].tag, found.records[4].node, found.records[4].data) == (b"red", b"w-1", b"1.10")
    assert [each.tier for each in found.manifest.segments.values()] == ["cold", "hot"]
    assert decoded.unnamed == ()


async def test_the_engine_reads_the_same(tiers: Tiers) -> None:
    options = Options(wal_file_bytes=1 << 16, wal_reserve_bytes=1 << 12, cold_dir=str(tiers.cold))
    async with Engine.open(tiers.root, options) as engine:
        result = await engine.read("orders", ReadQuery())
    assert ([each.seq for each in result.records], result.cold_segments_read) == ([1, 4, 5, 6, 7], 1)


def test_a_move_recorded_only_in_a_snapshot_section_is_followed(tiers: Tiers) -> None:
    last_ts = tiers.read().topics["orders"].records[7].ts
    states = [
        SegmentState(first_seq=1, end_seq=5, sealed=True, live=2, live_bytes=5, data_bytes=SEALED_BYTES, tier="cold"),
        SegmentState(first_seq=5, end_seq=7, live=2, live_bytes=2),
    ]
    said: dict[str, Any] = {"head_seq": 7, "last_ts": last_ts, "live_count": 5, "live_bytes": 8, "absorbed": 6}
    snapshot_file(tiers.root, section(**said, as_of=(1, len(log(end=moved()))), segments=states))
    assert [*tiers.read().topics["orders"].records] == [1, 4, 5, 6, 7]
    snapshot_file(tiers.root, section(**said, as_of=(1, len(log())), segments=states))
    tiers.refused("the frames below as_of come to")


def test_cold_segments_without_a_store_are_refused(tiers: Tiers) -> None:
    with pytest.raises(SpecViolation, match="it is in the cold store, and that is not at hand"):
        read_data_dir(tiers.root)


def test_local_data_of_a_cold_segment_is_listed_as_unnamed(tiers: Tiers) -> None:
    tiers.here(names.DATA).write_bytes(b"no matter what")
    assert tiers.read().unnamed == (f"topics/{1:016x}/{tiers.here(names.DATA).name}",)


@pytest.mark.parametrize("ending", [names.DATA, names.IDX])
def test_a_byte_flipped_in_any_object_is_refused(tiers: Tiers, ending: str) -> None:
    for offset in range(tiers.there(ending).stat().st_size):
        flip(tiers.there(ending), offset)
        with pytest.raises(SpecViolation):
            tiers.read()
        flip(tiers.there(ending), offset)
    tiers.read()


@pytest.mark.parametrize("ending", [names.DATA, names.IDX])
def test_a_missing_or_truncated_object_is_refused(tiers: Tiers, ending: str) -> None:
    path = tiers.there(ending)
    content = path.read_bytes()
    for other in (content[:-1], content + bytes(20), content[:-20]):
        path.write_bytes(other)
        with pytest.raises(SpecViolation):
            tiers.read()
    path.unlink()
    tiers.refused("the log says that it is in the cold store")


def test_the_index_of_a_cold_segment_stays_local(tiers: Tiers) -> None:
    tiers.here(names.IDX).unlink()
    tiers.refused("the log names it, and it is not there")


def _flag(path: Path, number: int) -> None:
    content = bytearray(path.read_bytes())
    at = number * idx_entry.ENTRY_SIZE + 16
    content[at : at + 4] = idx_entry.deleted_tail(bytes(content), number)
    path.write_bytes(content)


def test_the_local_index_decides_and_the_object_may_be_behind(tmp_path: Path) -> None:
    tiers = Tiers(tmp_path, log(end=moved() + controlled(control.Delete(bound_head=7, seqs=[4]))))
    assert [*tiers.read().topics["orders"].records] == [1, 5, 6, 7], "it is in the log, its flag is on its way"
    _flag(tiers.here(names.IDX), 3)
    assert [*tiers.read().topics["orders"].records] == [1, 5, 6, 7]
    _flag(tiers.there(names.IDX), 3)
    assert [*tiers.read().topics["orders"].records] == [1, 5, 6, 7]


def test_a_deletion_known_only_to_the_store_or_only_to_the_files_is_refused(tiers: Tiers) -> None:
    _flag(tiers.there(names.IDX), 3)
    tiers.refused("the entry here says something else")
    _flag(tiers.here(names.IDX), 3)
    tiers.refused("record 4 is Record")


def test_a_deletion_of_before_the_move_is_never_taken_back(tiers: Tiers) -> None:
    entries = tiers.here(names.IDX).read_bytes()
    old = idx_entry.unpack(entries, 2)
    live = idx_entry.pack(old.offset, old.len, old.ts, old.flags & ~idx_entry.DELETED)
    for path in (tiers.here(names.IDX), tiers.there(names.IDX)):
        path.write_bytes(entries[:40] + live + entries[60:])
    assert 3 not in tiers.read().topics["orders"].records, "the log says that it is gone, its flag is on its way"
    other = Tiers(tiers.root.parent / "other", log(deletes=b"", end=moved()))
    for path in (other.here(names.IDX), other.there(names.IDX)):
        path.write_bytes(entries[:40] + live + entries[60:])
    other.refused("though .data says")


@pytest.mark.parametrize("payloads", [[1, 0, 1, 5], [1, 1, 1, 4], [1, 0, 0, 4], [1, 0, 1], [1, 0, 1, 4, 0]])
def test_a_valid_len_file_with_other_sizes_is_refused(tiers: Tiers, payloads: list[int]) -> None:
    tiers.here(names.LEN).write_bytes(len_file.encode(1, 0, SEALED_BYTES, array("I", payloads)))
    tiers.refused(f"{tuple(payloads)}, though the records have {tuple(PAYLOADS)}")


def test_a_damaged_or_foreign_or_missing_len_file_is_ignored(tiers: Tiers) -> None:
    path = tiers.here(names.LEN)
    right = path.read_bytes()
    for content in (
        len_file.encode(1, 0, SEALED_BYTES - 1, array("I", [9] * 4)),
        len_file.encode(1, 1, SEALED_BYTES, array("I", [9] * 4)),
        len_file.encode(2, 0, SEALED_BYTES, array("I", [9] * 4)),
        right[:-1],
        b"TLEN",
    ):
        path.write_bytes(content)
        tiers.read()
    path.unlink()
    assert tiers.read().unnamed == ()


def test_a_byte_flipped_in_a_len_file_is_seen() -> None:
    content = len_file.encode(41, 2, 777, array("I", [5, 0, 7]))
    assert decode_len_file(content).payloads == (5, 0, 7)
    for offset in range(len(content)):
        damaged = bytearray(content)
        damaged[offset] ^= 1
        with pytest.raises(SpecViolation):
            decode_len_file(bytes(damaged))
    with pytest.raises(SpecViolation, match="length of the file"):
        decode_len_file(_summed(content[:32] + (4).to_bytes(4, "little") + content[36:]))


def _summed(content: bytes) -> bytes:
    """With a correct checksum."""
    digest = xxh3_64_intdigest(content[:36] + content[44:])
    return content[:36] + digest.to_bytes(8, "little") + content[44:]


def test_unnamed_files_are_listed(tiers: Tiers) -> None:
    path = segment_path(tiers.root, SegmentId(1, 1, 1), names.LEN)
    path.write_bytes(b"")
    assert tiers.read().unnamed == (f"topics/{1:016x}/{path.name}",)


NAMED = {"first_seq": 1, "end_seq": 5, "gen": 0}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cluster_id": "another"}, "of another"),
        ({"more": 1}, "'more'"),
        ({"renewals": []}, "no renewals: []"),
        ({"renewals": [[2, 4], [1, 5]]}, "no renewals: [[2, 4], [1, 5]]"),
        ({"name": "others"}, "of 'others', and log 1 is 'orders'"),
        ({"partition": 1}, "of 'orders', and log 1 is 'orders'"),
        ({"segments": [NAMED, NAMED]}, "does not come behind"),
        ({"segments": [NAMED | {"end_seq": 1}]}, "no segment"),
        ({"segments": [NAMED | {"end_seq": 4}]}, "the log says Named"),
        ({"segments": [NAMED | {"gen": 1}]}, "the log says that it is in the cold store"),
        ({"segments": []}, "record 1 lives below 5, and in no segment it names"),
        ({"end_seq": 6}, "record 5 lives below 6, and in no segment it names"),
    ],
)
def test_a_topic_file_with_other_values_is_refused(tiers: Tiers, changed: dict[str, Any], reason: str) -> None:
    tiers.topic_file(**changed)
    tiers.refused(reason)


def test_a_topic_file_may_have_renewals(tiers: Tiers) -> None:
    tiers.topic_file(renewals=[[1, 5], [2, 4]])
    tiers.read()


def _none(tiers: Tiers) -> None:
    (tiers.folder / "topic.json").unlink()


def _behind(tiers: Tiers) -> None:
    tiers.topic_file(segments=[], end_seq=1)


def _of_others(tiers: Tiers) -> None:
    (tiers.cold / "another-cluster").mkdir()
    (tiers.cold / "another-cluster" / "anything").write_bytes(b"")


def _unfinished(tiers: Tiers) -> None:
    tiers.there(names.DATA).with_suffix(".data.tmp").write_bytes(b"")


@pytest.mark.parametrize("change", [_none, _behind, _of_others, _unfinished])
def test_leftovers_of_a_crash_and_files_of_other_clusters_are_ignored(
    tiers: Tiers, change: Callable[[Tiers], None]
) -> None:
    change(tiers)
    assert [*tiers.read().topics["orders"].records] == [1, 4, 5, 6, 7]


def test_a_foreign_file_in_the_folder_of_the_topic_is_refused(tiers: Tiers) -> None:
    (tiers.folder / "notes").write_bytes(b"")
    tiers.refused("the specification knows no such object")


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (log(end=segment_event("tier", first_seq=5, end_seq=7, data_bytes=1, tier="cold")), "an active segment never"),
        (log(sealed=segment_event("sealed", data_bytes=SEALED_BYTES, tier="cold")), "sealed: tier cold, the segment"),
    ],
)
def test_an_impossible_move_is_refused(tmp_path: Path, frames: bytes, reason: str) -> None:
    Tiers(tmp_path, frames).refused(reason)
