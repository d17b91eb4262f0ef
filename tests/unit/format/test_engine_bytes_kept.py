"""Prepared bodies, producers, states and offsets, read back by the independent decoder and by the command line."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage import Durability, Engine, Options, TopicConfig
from storage.__main__ import main
from storage.errors import WalCorrupt
from storage.format.record import payload_sizes
from storage.inspect.directory import DataDirectory
from storage.inspect.verify import verify
from storage.inspect.wal import Finding
from storage.options import Recovery
from storage.platform.posix import PosixFileSystem
from storage.records.values import ProducerBatch, StoredBodies
from tests.support.spec_decoder import Decoded, read_data_dir

OPTIONS = Options(
    wal_shards=2,
    wal_file_bytes=1 << 16,
    wal_reserve_bytes=1 << 12,
    segment_max_events=8,
    sync_point_bytes=1000,
    checkpoint_interval_ms=3_600_000,
)
FSYNC = TopicConfig(durability=Durability.FSYNC)
MAP = msgspec.msgpack.encode({"v": b"\x00\xff", "k": b"\xfe", "h": [["a", None]], "ct": 5})
MIXED = StoredBodies(
    [b'{"data":{"meta":1,"x":",\\"meta\\":"},"meta":{"a":"b"},"ct":5,"h":[["a","Yg=="]]}', MAP, b'{"data":1}'],
    [b"", b"k", b"\xc3\xbc"],
    b"\x00\x01\x00",
)


async def live(engine: Engine) -> None:
    """Do a little of everything."""
    mixed = StoredBodies(MIXED.bodies, MIXED.tags, MIXED.binary, payload_sizes(MIXED.bodies))
    await engine.put_topic("t", FSYNC)
    await engine.put_topic("d", TopicConfig(durability=Durability.DISK))
    for number in range(9):
        for name in "td":
            await engine.append(name, mixed, producer=ProducerBatch(7 + number % 2, 3, number // 2 * 3), node="n")
        await engine.states.put("group", f"{number % 4}", b"\x00" * number)
        await engine.consumers.commit_offset("t", f"group:{number % 3}", number, b"m%d" % number)
        if number % 3 == 2:
            await engine.snapshotter.take()
            await engine.states.delete("group", "1")
            await engine.segment_worker.flush_all()
    await engine.consumers.commit("t", "group:0", 9)
    await engine.producers.claim()


async def engine_at(root: Path, *, clean: bool) -> Decoded:
    engine = Engine(root, OPTIONS)
    await engine.start()
    await live(engine)
    if clean:
        await engine.close()
        return read_data_dir(root)
    await engine.snapshotter.take()
    decoded = read_data_dir(root)
    await engine.close()
    return decoded


@pytest.mark.parametrize("clean", [True, False])
async def test_the_decoder_finds_the_producers_states_and_offsets_of_the_engine(tmp_path: Path, clean: bool) -> None:
    decoded = await engine_at(tmp_path / "data", clean=clean)
    logs = {log.name: log for log in decoded.logs.values()}
    assert len(logs["t"].records) == len(logs["d"].records) == 27
    assert logs["t"].records[5].data == MAP
    assert logs["t"].kept.producers[7] == (3, [[base, base + 2, base * 2 + 1] for base in range(0, 15, 3)])
    values = logs["t"].kept.values
    assert values == {("offset", "group:1"): b"m7", ("offset", "group:2"): b"m8"}
    assert {shard.index for shard in decoded.shards} == {0, 1}
    assert decoded.snapshots[-1].states is not None
    keys = [key for kind, key, _ in decoded.snapshots[-1].states["values"] if kind == "group"]
    assert keys == ["0", "2", "3"]


async def test_a_wrong_value_in_a_snapshot_is_detected(tmp_path: Path) -> None:
    decoded = await engine_at(tmp_path / "data", clean=True)
    newest = decoded.snapshots[-1]
    assert newest.states is not None
    [log] = [each for each in decoded.logs.values() if each.name == "t"]
    section = copy.deepcopy(newest.sections[log.topic_id].fields)
    log.kept.meet(copy.deepcopy(section["states"]), copy.deepcopy(section["producers"]))
    section["producers"][0]["batches"][-1][2] += 1
    with pytest.raises(Exception, match="producer 8 is"):
        log.kept.meet(section["states"], section["producers"])
    with pytest.raises(Exception, match="values are"):
        log.kept.meet(section["states"][1:], [])


async def test_dump_and_verify_read_producers_states_and_offsets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    await engine_at(root, clean=True)
    found: list[Finding] = []
    assert verify(DataDirectory(PosixFileSystem(), str(root)), found.append).wrong is False, found
    assert main(["dump", str(root)]) == 0
    text = capsys.readouterr().out
    assert '"kind":"group","key":"3"' in text
    assert "State" in text
    assert main(["dump", str(root), "--json"]) == 0
    lines: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    states = [line["control"] for line in lines if line.get("type_name") == "State"]
    assert {"kind": "offset", "key": "group:2", "value": b"m8".hex()} in states
    newest = [line for line in lines if line["kind"] == "snapshot"][-1]
    assert ["group", "3", (b"\x00" * 7).hex()] in newest["states"]["values"]
    section = [line for line in lines if line["kind"] == "section" and line["name"] == "t"][-1]
    assert section["producers"][0]["epoch"] == 3


async def test_salvage_reports_the_lost_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    engine = Engine(root, OPTIONS)
    await engine.start()
    for number in range(40):
        await engine.states.put("group", f"{number}", b"x" * 100)
    await engine.append("t", MIXED, config=FSYNC)
    await engine.consumers.commit_offset("t", "g", 3, b"m")
    shard = engine.catalog.topics["t"].log.shard
    await engine.shards[0].stop()
    await engine.shards[1].stop()
    engine.logs.ready = False
    await engine.close()
    path = root / "wal" / "shard-00" / "wal-0000000000000001.log"
    content = bytearray(path.read_bytes())
    at = content.index(b"\xa3key\xa15")
    content[at + 30] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(WalCorrupt):
        await Engine(root, OPTIONS).start()
    async with Engine.open(root, msgspec.structs.replace(OPTIONS, recovery=Recovery.SALVAGE)) as salvaged:
        assert salvaged.states.get("group", "5") is None
        assert len(salvaged.states.items("group")) == 39
        assert salvaged.report.salvaged_bytes > 100
        await salvaged.states.put("group", "5", b"again")
    async with Engine.open(root, OPTIONS) as again:
        assert len(again.states.items("group")) == 40
        assert again.consumers.committed("t", "g")[:2] == (3, b"m") or shard == 0
