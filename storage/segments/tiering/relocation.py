"""The steps that move a segment to the cold tier, and the content of topic.json. Blocking, on the cold pool, or pure.

Source: docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec
import structlog

from storage.platform import FileSystem, Readable
from storage.records import TagMatch
from storage.segments import names
from storage.segments.errors import SegmentCorrupt
from storage.segments.names import SegmentId
from storage.segments.packed import open_data
from storage.segments.store import SegmentStore, id_of
from storage.segments.tiering.store import ColdMissing, ColdStore, ColdUnavailable
from storage.segments.tiering.tier import ColdTier
from storage.state import COLD, Log, LossRange, Segment, Topic

#: Bytes read back and compared at a time.
_PIECE_BYTES = 4 << 20

_log = structlog.get_logger("storage")


class TopicFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """topic.json: names the objects of a log that count, for readers of the tier without a broker.

    Records with seq < end_seq are in these segments, or gone; of later ones some are missing. `topic`: the topic_id of
    partition 0, which no other topic of that name has had. `renewals`: as in `Log.renewals`.
    """

    cluster_id: str
    name: str
    topic: int
    partition: int
    partitions: int
    epoch: int
    floors: dict[str, int]
    loss: list[LossRange]
    segments: list[dict[str, int]]
    end_seq: int
    renewals: list[tuple[int, int]] = []


def topic_file(cluster_id: str, topic: Topic, log: Log) -> bytes:
    """The present content of a log's topic.json. Pure."""
    named: list[dict[str, int]] = []
    end_seq, behind_hot = 1, False
    for segment in log.held.manifest.segments:
        if segment.tier == COLD:
            named.append({"first_seq": segment.first_seq, "end_seq": segment.end_seq, "gen": segment.gen})
            end_seq = end_seq if behind_hot else segment.end_seq
        else:
            behind_hot = True
    content = TopicFile(
        cluster_id=cluster_id,
        name=topic.title,
        topic=topic.root_id,
        partition=log.partition,
        partitions=topic.config.partitions,
        epoch=log.epoch,
        floors=dict(log.marks.floors),
        loss=list(log.marks.loss),
        segments=named,
        end_seq=end_seq,
        renewals=list(log.renewals),
    )
    return msgspec.json.encode(content)


def beyond_retention(segments: Sequence[Segment], keep: int, keep_bytes: int) -> Sequence[Segment]:
    """The sealed segments, oldest first, that are not among the newest `keep`, nor within `keep_bytes` (0 = off)."""
    sealed = segments if not segments or segments[-1].sealed else segments[:-1]
    border, size = len(sealed), 0
    while border and len(sealed) - border < keep:
        size += sealed[border - 1].data_bytes
        if keep_bytes and size > keep_bytes:
            break
        border -= 1
    return sealed[:border]


def write_sidecars(store: SegmentStore, topic_id: int, segment: Segment) -> None:
    """Write the files that stay instead of .data. May be repeated. Raises SegmentError, OSError."""
    id = id_of(topic_id, segment)
    with contextlib.closing(open_data(store.fs, store.root, id)) as data:
        if (size := data.size()) != segment.data_bytes:
            path = names.records_path(store.root, id)
            raise SegmentCorrupt(path, size, f"the file has {size} bytes, not {segment.data_bytes}")
    store.keep_sizes(topic_id, segment, store.details(topic_id, segment))
    try:
        store.tagged(topic_id, segment, TagMatch(b"\0"))  # makes .tag if it is missing
    except SegmentCorrupt as error:  # a damaged record stays damaged in the store; searches by tag report it
        _log.warning("segment_without_tags", file=error.file, offset=error.offset, error=error.what)


def copy(store: SegmentStore, cold: ColdTier, topic_id: int, segment: Segment, go_on: Callable[[], None]) -> None:
    """Put .data and .idx and read them back.

    The files must not change meanwhile. `go_on` is called between steps and may raise to end it early. Raises
    ColdUnavailable (it may be repeated), SegmentError, OSError.
    """
    id = id_of(topic_id, segment)
    with contextlib.ExitStack() as opened:
        sources: dict[str, Readable] = {
            names.DATA: opened.enter_context(contextlib.closing(open_data(store.fs, store.root, id))),
            names.IDX: opened.enter_context(
                contextlib.closing(store.fs.open(names.path(store.root, id, names.IDX), write=False))
            ),
        }
        for ext, source in sources.items():
            go_on()
            cold.store.put_from(cold.key(id, ext), source)
        for ext, source in sources.items():
            _compare(source, cold.store, cold.key(id, ext), go_on)


def _compare(file: Readable, store: ColdStore, key: str, go_on: Callable[[], None]) -> None:
    """Raises ColdUnavailable when object and file differ."""
    try:
        same = store.size(key) == file.size() and _same_bytes(file, store, key, go_on)
    except ColdMissing as error:
        raise ColdUnavailable(key, "what was put is not there") from error
    if not same:
        raise ColdUnavailable(key, "what is read back is not what was put")


def _same_bytes(file: Readable, store: ColdStore, key: str, go_on: Callable[[], None]) -> bool:
    size = file.size()
    for offset in range(0, size, _PIECE_BYTES):
        go_on()
        count = min(_PIECE_BYTES, size - offset)
        if file.pread(count, offset) != store.get_range(key, offset, count):
            return False
    return True


def put_idx(fs: FileSystem, root: str, cold: ColdTier, id: SegmentId, *, compare: bool) -> None:
    """Put the whole .idx again; with `compare` only if the object differs. Raises ColdUnavailable, OSError."""
    with contextlib.closing(fs.open(names.path(root, id, names.IDX), write=False)) as file:
        content = file.pread(file.size(), 0)
    key = cold.key(id, names.IDX)
    if compare:
        with contextlib.suppress(ColdMissing):
            if cold.store.get(key) == content:
                return
    cold.store.put_bytes(key, content)


def remove_hot_data(fs: FileSystem, root: str, id: SegmentId) -> None:
    """Unlink the .data (or .zdata) of a segment that is cold by a synced frame. May be repeated. Raises OSError."""
    for ext in (names.DATA, names.PACKED):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(names.path(root, id, ext))
    with contextlib.suppress(FileNotFoundError):
        fs.sync_dir(names.folder(root, id.topic_id))


def remove_objects(cold: ColdTier, id: SegmentId) -> None:
    """Remove the objects of a segment that no manifest names. May be repeated. Raises ColdUnavailable."""
    for ext in (names.DATA, names.IDX):
        cold.store.delete(cold.key(id, ext))


def remove_log(cold: ColdTier, topic_id: int) -> None:
    """Remove all objects of a deleted log, topic.json first. May be repeated. Raises ColdUnavailable."""
    cold.store.delete(cold.topic_key(topic_id))
    for key in cold.store.list(cold.log_folder(topic_id)):
        cold.store.delete(key)
