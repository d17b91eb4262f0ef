"""A log that is read ahead in a thread is recovered, or refused, exactly like one that is read in place."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from storage import Durability, Engine, NewRecord, Options, Recovery, TagMatch, TopicConfig
from storage.format import control, wal_frame
from storage.log.reader import Chunk, FrameStream
from storage.options import IoBackend
from storage.recovery import log_end
from tests.support.recovered import outcome

SHARDS = 2
FILE_BYTES = 1 << 16
OPTIONS = Options(
    wal_shards=SHARDS,
    wal_file_bytes=FILE_BYTES,
    wal_reserve_bytes=1 << 13,
    sync_point_bytes=1 << 14,
    snapshot_interval_ms=1 << 40,
    snapshot_wal_bytes=1 << 40,
    expiry_interval_ms=1 << 40,
)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whether files are read ahead [1] or in place [0], and of how many files."""
    said, chunks_ahead = [0, 0], FrameStream.chunks_ahead

    def counted(stream: FrameStream) -> Iterator[Chunk]:
        said[1] += 1
        return chunks_ahead(stream)

    monkeypatch.setattr(log_end, "backend_of", lambda _: IoBackend.FD if said[0] else None)
    monkeypatch.setattr(FrameStream, "chunks_ahead", counted)
    monkeypatch.setattr(FrameStream.__init__, "__defaults__", (0, 1 << 12))  # small logs consist of several pieces here
    return said


def record(rng: Random) -> NewRecord:
    data = json.dumps({"text": "x" * rng.choice([20, 20, 20, rng.randrange(300)])}).encode()
    meta = msgspec.Raw(b'{"a":1}') if rng.random() < 0.1 else None
    return NewRecord(msgspec.Raw(data), meta, tag=rng.choice(["red", "green"]) if rng.random() < 0.1 else None)


async def write(root: Path, rng: Random) -> None:
    """A directory with some history, and its copy at `root` as a kill leaves it."""
    made = root.with_name("made")
    engine = Engine(str(made), OPTIONS)
    await engine.start()
    names = [f"topic-{number}" for number in range(4)]
    for name in names:
        durability = rng.choice([Durability.DISK, Durability.FSYNC, Durability.MEMORY])
        await engine.put_topic(name, TopicConfig(durability=durability, cap_records=rng.choice([0, 0, 500])))
    for step in range(rng.randrange(60, 120)):
        name, what = rng.choice(names), rng.random()
        if what < 0.8:
            plain = [NewRecord(msgspec.Raw(b'"%060d"' % number)) for number in range(rng.choice([1, 2, 50, 120]))]
            batch = plain if rng.random() < 0.6 else [record(rng) for _ in range(rng.randrange(1, 60))]
            key = f"key-{step}" if rng.random() < 0.5 else None
            await engine.append(name, batch, idempotency_key=key)
        elif what < 0.9:
            await engine.delete_records(name, match=TagMatch(b"red"))
        elif what < 0.95:
            await engine.delete_topic(name)
            await engine.put_topic(name, TopicConfig(durability=Durability.DISK))
        elif rng.random() < 0.5:
            await engine.snapshotter.take()
    shutil.copytree(made, root)
    await engine.close()
    shutil.rmtree(made)


def written(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def poke(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def whole(files: list[Path], rng: Random) -> None:
    pass


def flipped_byte(files: list[Path], rng: Random) -> None:
    path = rng.choice(files)
    offset = rng.randrange(written(path))
    poke(path, offset, bytes([path.read_bytes()[offset] ^ 1 << rng.randrange(8)]))


def torn_end(files: list[Path], rng: Random) -> None:
    path = rng.choice([files[-1], rng.choice(files)])
    cut = rng.randrange(written(path))
    poke(path, cut, bytes(path.stat().st_size - cut))


def cut_short(files: list[Path], rng: Random) -> None:
    path = rng.choice([files[-1], rng.choice(files)])
    with path.open("r+b") as file:
        file.truncate(rng.randrange(written(path)))


def missing_file(files: list[Path], rng: Random) -> None:
    rng.choice(files).unlink()


def half_a_batch(files: list[Path], rng: Random) -> None:
    batch = control.encode_control(control.Batch(frames=3, body_bytes=400, first_seq=1))
    half = wal_frame.encode(12, wal_frame.MORE, 1, 0, 9, data=batch) + wal_frame.encode(
        1, 8, 1, 7, 9, data=b'{"data":1}'
    )
    poke(files[-1], written(files[-1]), half)


def batch_that_does_not_fit(files: list[Path], rng: Random) -> None:
    batch = control.encode_control(control.Batch(frames=5, body_bytes=4, first_seq=1))
    bad = wal_frame.encode(12, wal_frame.MORE, 1, 0, 9, data=batch) + wal_frame.encode(
        1, 0, 1, 7, 9, data=b'{"data":1}'
    )
    poke(files[-1], written(files[-1]), bad)


def frame_without_record(files: list[Path], rng: Random) -> None:
    poke(files[-1], written(files[-1]), wal_frame.encode(1, 0, 1, 7, 9, data=b"{}"))


def newer_frame(files: list[Path], rng: Random) -> None:
    path = rng.choice(files)
    poke(path, written(path), wal_frame.encode(99, 0, 1, 0, 9))


def jump_in_seqs(files: list[Path], rng: Random) -> None:
    poke(files[-1], written(files[-1]), wal_frame.encode(1, 0, 1, 1 << 40, 9, data=b'{"data":1}'))


DAMAGES = [
    whole,
    flipped_byte,
    torn_end,
    cut_short,
    missing_file,
    half_a_batch,
    batch_that_does_not_fit,
    frame_without_record,
    newer_frame,
    jump_in_seqs,
]


@pytest.mark.parametrize("seed", range(3))
async def test_recovery_with_read_ahead_equals_recovery_in_place(
    seed: int, tmp_path: Path, ahead: list[int], soak_mode: bool
) -> None:
    refused = 0
    for round in range(20 if soak_mode else 1):
        rng = Random(f"{seed}/{round}")
        await write(tmp_path / "whole", rng)
        for damage in DAMAGES:
            root = tmp_path / "damaged"
            shutil.copytree(tmp_path / "whole", root)
            shard = rng.choice(["shard-00", "shard-01"])
            files = [path for path in sorted((root / "wal" / shard).glob("wal-*.log")) if written(path)]
            damage(files, rng)
            options = msgspec.structs.replace(OPTIONS, recovery=rng.choice([Recovery.REFUSE] * 4 + [Recovery.SALVAGE]))
            trusted = rng.random() < 0.5
            ends: list[object] = []
            for ahead[0] in (0, 1):
                given = tmp_path / "data"
                shutil.copytree(root, given)
                ends.append(await asyncio.to_thread(outcome, given, options, shards=SHARDS, trusted=trusted))
                shutil.rmtree(given)
            assert ends[0] == ends[1], f"{damage.__name__}, seed {seed}/{round}"
            refused += ends[0][0][0] == "refused"  # type: ignore[index]
            shutil.rmtree(root)
        shutil.rmtree(tmp_path / "whole")
    assert ahead[1] >= len(DAMAGES), "hardly any file was read ahead"
    assert refused >= 2, "hardly any damage was refused"
