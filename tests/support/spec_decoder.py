"""An independent decoder of a data directory, written from the storage specification alone.

It shares no code with the package under test, and neither do the other `spec_` modules, so that two independent
programs have to agree. Whatever is not exactly as specified is a `SpecViolation` naming file, offset and reason. Each
module's docstring lists how it reads what the specification leaves open.

Readings here:

- A log (of a shard) ends behind the last complete batch of the last file that holds one. Files before that one
  consist of frames to their last byte, or hold no byte but zeros (prepared and never used). Of the files behind it
  the first that holds more than zeros may be torn at byte 0, but then the last one with a batch ends exactly with it,
  since that was cut and synced before. All others hold no byte but zeros.
- The shard count is the newest snapshot's, else FORMAT's.
- Names the specification does not give are a violation, but for `*.tmp`, which a crash may leave.
- Every snapshot that has its final name is valid: it was synced before it was renamed. The log must reach back to
  where the replay of the two newest begins; a third one that a crash has left behind may be older than that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import xxhash

from tests.support.spec_cold import ColdStore, Objects
from tests.support.spec_control import CHECKPOINT_MARK, STATE, TOPIC_CREATE
from tests.support.spec_folders import SEGMENT_NAME, take_segments
from tests.support.spec_frames import Frame, SpecViolation
from tests.support.spec_meta import (
    PACKED_FORMAT_VERSION,
    FormatFile,
    LockFile,
    decode_current,
    decode_format,
    decode_lock,
    decode_reserve,
)
from tests.support.spec_partitions import judge_partitions
from tests.support.spec_replay import Log, Replay
from tests.support.spec_snapshot import Section, Snapshot, decode_snapshot, log_of, meet
from tests.support.spec_wal import WalFile, decode_wal_file

__all__ = ["Decoded", "Shard", "SpecViolation", "decode_snapshot", "decode_wal_file", "read_data_dir", "read_files"]

_WAL_NAME = re.compile(r"wal/(?:shard-(\d{2,})/)?(?:wal-(\d{16})\.log|(CURRENT)|(reserve))")
_SNAPSHOT_NAME = re.compile(r"meta/snapshot-(\d{16})\.bin")
_OTHER_NAMES = re.compile(r"\.lock|FORMAT|meta/reserve|meta/cold-store|quarantine/.+|.*\.tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One shard: its files in order, and where its log ends (file number, offset). torn: there are bytes after that
    end."""

    index: int
    files: tuple[WalFile, ...]
    end: tuple[int, int]
    torn: bool

    @property
    def frames(self) -> list[Frame]:
        return [frame for file in self.files for frame in file.frames]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A whole data directory. `logs`: live logs by topic_id. `unnamed`: segment files that belong to none of them."""

    format: FormatFile
    lock: LockFile | None
    shards: tuple[Shard, ...]
    snapshots: tuple[Snapshot, ...]
    logs: Mapping[int, Log]
    unnamed: tuple[str, ...]

    @property
    def topics(self) -> dict[str, Log]:
        """Partition 0 by name. Of two with one name, the higher id wins."""
        return {log.name: log for _, log in sorted(self.logs.items()) if log.partition == 0}

    @property
    def remarks(self) -> list[str]:
        """Deviations from the specification that no reader can misread."""
        frames = [frame for shard in self.shards for frame in shard.frames if frame.remark]
        return [f"{frame.file} at {frame.offset}: {frame.remark}" for frame in frames]

    @property
    def torn(self) -> bool:
        return any(shard.torn for shard in self.shards)


def read_data_dir(path: str | Path, cold: str | Path | None = None) -> Decoded:
    """Decode the directory, and the one that it has as cold store. Nothing is written, and the lock is not taken."""
    return read_files(_files_below(path), _files_below(cold) if cold is not None else None)


def _files_below(path: str | Path) -> dict[str, Callable[[], bytes]]:
    root = Path(path)
    return {str(file.relative_to(root)): file.read_bytes for file in root.rglob("*") if file.is_file()}


def read_files(files: Mapping[str, Callable[[], bytes]], cold: Objects | None = None) -> Decoded:
    """Decode a directory given as relative path → a function that returns the bytes, one file at a time.

    `cold`: the content of its cold store, by key.
    """
    for name in files:
        if not any(pattern.fullmatch(name) for pattern in (_WAL_NAME, _SNAPSHOT_NAME, SEGMENT_NAME, _OTHER_NAMES)):
            raise SpecViolation(name, 0, "the specification knows no such file")
    if "FORMAT" not in files:
        raise SpecViolation("FORMAT", 0, "there is none: not a data directory")
    made = decode_format(files["FORMAT"]())
    if "meta/cold-store" in files and files["meta/cold-store"]() != f"{made.cluster_id}\n".encode():
        raise SpecViolation("meta/cold-store", 0, "it is not the cluster id and a newline")
    snapshots = _snapshots(files)
    shards = _shards(files, snapshots[-1].shards if snapshots else made.shard_count, bool(snapshots))
    logs: dict[int, Log] = {}
    for shard in shards:
        logs |= _replay(shard, len(shards), snapshots[-2:])
    judge_partitions(logs)
    if made.version < PACKED_FORMAT_VERSION and any(
        segment.packed for log in logs.values() for segment in log.manifest.segments.values()
    ):
        raise SpecViolation("FORMAT", 0, f"version {made.version}, and a segment is packed")
    return Decoded(
        format=made,
        lock=decode_lock(files[".lock"]()) if ".lock" in files else None,
        shards=shards,
        snapshots=snapshots,
        logs=logs,
        unnamed=take_segments(files, logs.values(), None if cold is None else ColdStore(cold, made.cluster_id)),
    )


def _snapshots(files: Mapping[str, Callable[[], bytes]]) -> tuple[Snapshot, ...]:
    found = sorted((int(match[1]), name) for name in files if (match := _SNAPSHOT_NAME.fullmatch(name)))
    if "meta/reserve" in files:
        decode_reserve(files["meta/reserve"](), "meta/reserve")
    return tuple(decode_snapshot(files[name](), number=number, name=name) for number, name in found)


def _shards(files: Mapping[str, Callable[[], bytes]], count: int, has_snapshot: bool) -> tuple[Shard, ...]:
    numbered: dict[int, dict[int, str]] = {}
    for name in files:
        match = _WAL_NAME.fullmatch(name)
        if match is None:
            continue
        if (match[1] is None) != (count == 1):
            raise SpecViolation(name, 0, f"not where a log of {count} shards lies")
        shard = int(match[1] or 0)
        if shard >= count or name.split("/")[1] != (f"shard-{shard:02d}" if count > 1 else name.split("/")[1]):
            raise SpecViolation(name, 0, f"no shard of {count}")
        if match[2]:
            numbered.setdefault(shard, {})[int(match[2])] = name
        elif match[3]:
            decode_current(files[name](), name)
        else:
            decode_reserve(files[name](), name)
    return tuple(_shard(index, numbered.get(index, {}), files, has_snapshot) for index in range(count))


def _shard(index: int, names: dict[int, str], files: Mapping[str, Callable[[], bytes]], has_snapshot: bool) -> Shard:
    numbers = sorted(names)
    if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise SpecViolation(names[numbers[0]], 0, f"a file number is missing among {numbers}")
    if numbers and numbers[0] != 1 and not has_snapshot:
        raise SpecViolation(names[numbers[0]], 0, "the log does not begin at file 1, and there is no snapshot")
    decoded = [decode_wal_file(files[names[number]](), number=number, name=names[number]) for number in numbers]
    last = max((place for place, file in enumerate(decoded) if file.batches), default=-1)
    for file in decoded[: max(last, 0)]:
        if file.end != file.size and (file.batches or file.torn):
            raise SpecViolation(file.name, file.end, f"an earlier file does not end with its last frame. {file.torn}")
    _judge_behind([file for file in decoded[last + 1 :] if file.torn], decoded[last] if last >= 0 else None)
    end = (decoded[last].number, decoded[last].end) if last >= 0 else (numbers[0] if numbers else 0, 0)
    return Shard(index=index, files=tuple(decoded), end=end, torn=any(file.torn for file in decoded))


def _judge_behind(used: list[WalFile], last: WalFile | None) -> None:
    """The files after the last one with a batch that contain more than zeros, but no batch."""
    if used and last is not None and last.end != last.size:
        raise SpecViolation(last.name, last.end, "the next file was begun before this one was cut to its length")
    if len(used) > 1:
        raise SpecViolation(used[1].name, 0, f"bytes in a file that nothing was written to yet. {used[1].torn}")


def _replay(shard: Shard, shard_count: int, snapshots: tuple[Snapshot, ...]) -> dict[int, Log]:
    _judge_reach(shard, snapshots)
    sections = [one for snapshot in snapshots for one in snapshot.sections.values()]
    sections = [one for one in sections if _shard_of(one.topic_id, shard_count) == shard.index]
    created = {frame.topic_id for frame in shard.frames if frame.type == TOPIC_CREATE}
    replay = Replay({one.topic_id: log_of(one) for one in reversed(sections) if one.topic_id not in created})
    due = sorted(sections, key=lambda one: one.as_of)
    own = [one for one in snapshots if one.states is not None and shard.index == 0]
    replay.kept.partial = bool(own) and (not shard.files or shard.files[0].number != 1)
    for file in shard.files:
        for batch in file.batches:
            due = _meet_due(replay, due, (file.number, batch.offset))
            own = _meet_own(replay, own, (file.number, batch.offset))
            for frame in batch.frames:
                _judge_shard(frame, shard.index, shard_count)
            replay.apply(batch)
    if left := _meet_due(replay, due, shard.end):
        raise left[0].wrong(f"the log ends at {shard.end}, below as_of {left[0].as_of}")
    if late := _meet_own(replay, own, shard.end):
        raise SpecViolation(late[0].name, 0, f"the log ends at {shard.end}, below as_of of what belongs to no log")
    for log in replay.logs.values():
        if log.manifest.absorbed < log.manifest.announced:
            raise SpecViolation(
                shard.files[-1].name if shard.files else "wal",
                shard.end[1],
                f"log {log.topic_id}: a snapshot says that {log.manifest.announced} is absorbed, "
                f"the marks go to {log.manifest.absorbed}",
            )
    if snapshots and snapshots[-1].clean:
        _judge_clean(replay, snapshots[-1], shard)
    return replay.logs


def _judge_reach(shard: Shard, snapshots: tuple[Snapshot, ...]) -> None:
    """Check that the files of every snapshot's replay exist."""
    for snapshot in snapshots:
        if len(snapshot.redo_from) <= shard.index:
            raise SpecViolation(snapshot.name, 0, f"says nothing of shard {shard.index}")
        number, offset = snapshot.redo_from[shard.index]
        if shard.files and number and number < shard.files[0].number:
            raise SpecViolation(
                snapshot.name, 0, f"replay starts in file {number} of shard {shard.index}, which is gone"
            )
        if (number, offset) > shard.end and offset:
            raise SpecViolation(
                snapshot.name, 0, f"replay starts at {(number, offset)}, behind the log's end {shard.end}"
            )


def _meet_due(replay: Replay, due: list[Section], place: tuple[int, int]) -> list[Section]:
    """Compare the sections whose `as_of` the replay has reached. Returns the others."""
    for section in due:
        if section.as_of <= place:
            log = replay.logs.get(section.topic_id)
            if log is None and section.topic_id not in replay.deleted:
                raise section.wrong("there is no such log at its as_of")
            if log is not None:
                meet(log, section)
    return [section for section in due if section.as_of > place]


def _meet_own(replay: Replay, due: list[Snapshot], place: tuple[int, int]) -> list[Snapshot]:
    """The same for what belongs to no log, which is in shard 0."""
    left: list[Snapshot] = []
    for one in due:
        assert one.states is not None
        if tuple(one.states["as_of"]) <= place:
            one.meet_states(replay.kept)
        else:
            left.append(one)
    return left


def _judge_clean(replay: Replay, snapshot: Snapshot, shard: Shard) -> None:
    """After a clean stop nothing is reserved beyond the head, unless frames follow."""
    for topic_id, section in snapshot.sections.items():
        log = replay.logs.get(topic_id)
        if log is None or log.durability in ("fsync", "ephemeral") or section.fields["head_seq"] != log.head:
            continue
        if section.fields["reserved"] != log.head:
            raise section.wrong(f"clean, yet reserved is {section.fields['reserved']} and head {log.head}")


def _shard_of(topic_id: int, shard_count: int) -> int:
    return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little"), seed=0) % shard_count


def _judge_shard(frame: Frame, index: int, shard_count: int) -> None:
    topic_ids = [frame.topic_id] if frame.topic_id else []
    if frame.type == CHECKPOINT_MARK:
        topic_ids += frame.field("absorbed")
    if frame.type == STATE and not frame.topic_id and index:
        raise SpecViolation(frame.file, frame.offset, f"a State of no log in shard {index}")
    for topic_id in topic_ids:
        if _shard_of(topic_id, shard_count) != index:
            raise SpecViolation(
                frame.file, frame.offset, f"log {topic_id} does not belong to shard {index} of {shard_count}"
            )
