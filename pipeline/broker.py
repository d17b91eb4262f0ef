"""Reads from a broker through the client, which retries what may succeed later."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import msgspec

from pipeline.batches import Row
from pipeline.errors import BadOption, Gap, PipelineError, SegmentDamaged, SourceUnreadable, TopicChanged
from pipeline.view import LogView, PartitionCounts, SegmentInfo
from storage.format import ENTRY_SIZE, idx_entry
from topics_client import Client, RetryPolicy, calls
from topics_client.calls import getting, read, topic_path
from topics_client.errors import ApiError, ConnectionFailed, InvalidRequest, NotFound, TopicNotFound, TopicsError
from topics_client.values import TopicState
from topics_client.wire import Call, Reply

T = TypeVar("T")

#: Bytes of a request for a segment's data, and of a read of the tail.
CHUNK_BYTES = 8 << 20
_DIFF_LIMIT = 1000


class _Record(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    node: str | None = msgspec.field(name="$node", default=None)
    tag: str | None = msgspec.field(name="$tag", default=None)
    data: msgspec.Raw = msgspec.Raw(b"null")
    meta: msgspec.Raw = msgspec.Raw()
    stored: bytes | None = msgspec.field(name="$stored", default=None)


class _Tombstone(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str


class _Diff(msgspec.Struct):
    records: list[_Record]
    next_from_seq: int
    tombstone: _Tombstone | None = None


class Page(NamedTuple):
    """The records of one read, and the loss before them. All seqs up to `last_seq` have been examined."""

    rows: list[Row]
    last_seq: int
    gap: Gap | None


_DIFF = msgspec.json.Decoder(_Diff)
_VIEW = msgspec.json.Decoder(LogView)


class Broker:
    """One broker. Close it, or use it in a `with` block. It cannot be shared between processes.

    Each call waits up to `patience_s` (seconds) for a broker that cannot be reached, for example while it restarts.
    """

    def __init__(self, url: str, token: str | None = None, *, patience_s: float = 60.0) -> None:
        self.url = url
        try:
            self.client = Client(url, token=token, retry=RetryPolicy(total_s=patience_s))
        except TopicsError as error:
            raise SourceUnreadable(str(error)) from error

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()

    def topics(self) -> list[str]:
        """Names of all topics, sorted. Raises SourceUnreadable."""
        try:
            return [each.topic for each in self.client.list_topics()]
        except TopicsError as error:
            raise self._unreadable("the list of topics", error) from error

    def partitions(self, topic: str) -> int:
        """The current number of partitions. Raises SourceUnreadable."""
        return len(self.held(topic))

    def view(self, topic: str, partition: int = 0) -> LogView:
        """The current state of a partition. Raises SourceUnreadable."""
        request = getting(topic_path(topic, "/segments"), {"partition": _given(partition)})
        return msgspec.structs.replace(self._run(Call(request=request, parse=_parse_view), topic), partition=partition)

    def held(self, topic: str) -> list[PartitionCounts]:
        """The broker's counts of records in each partition, independent of its files.

        Raises SourceUnreadable, and BadOption for text that cannot be a name.
        """
        found = self._state(topic)
        parts = found.partitions or [found.of(None)]
        if [each.partition for each in parts] != list(range(int(found.config.get("partitions", 1)))):
            raise SourceUnreadable(f"{topic}: {self.url} reports other partitions than the topic's settings.")
        return [PartitionCounts(each.partition, each.epoch, each.head_seq, each.count) for each in parts]

    def is_ephemeral(self, topic: str) -> bool:
        """Whether records of the topic are only in memory, as its settings say now. Raises SourceUnreadable."""
        return self._state(topic).config.get("durability") == "ephemeral"

    def _state(self, topic: str) -> TopicState:
        try:
            call = calls.state(topic, touch=False)
        except InvalidRequest as error:
            raise BadOption(str(error)) from error
        return self._run(call, topic)

    def page(self, topic: str, view: LogView, after_seq: int, *, limit: int = _DIFF_LIMIT, from_ts: int = 0) -> Page:
        """Read records after `after_seq`. `gap` is the loss that begins at after_seq + 1.

        Raises SourceUnreadable, SegmentDamaged.
        """
        call = read(
            topic,
            after_seq,
            {
                "limit": limit,
                "max_batch_bytes": CHUNK_BYTES,
                "include_tags": True,
                "include_stored": True,
                "epoch": view.epoch,
                "from_ts": from_ts or None,
                "partition": view.partition or None,
            },
        )
        found = self._run(Call(request=call.request, parse=lambda reply: _DIFF.decode(reply.body)), topic)
        gone = found.tombstone
        gap = None if gone is None else Gap(topic, view.partition, gone.gap_from, gone.gap_to, gone.reason)
        return Page([_row(each) for each in found.records], found.next_from_seq, gap)

    def reason(self, topic: str, view: LogView, seq: int) -> str:
        """Why `seq`, which is below evict_floor, is gone."""
        gap = self.page(topic, view, seq - 1, limit=1).gap
        return gap.reason if gap is not None else "unknown"

    def data(
        self, topic: str, view: LogView, segment: SegmentInfo, start: int, end: int, ahead: int
    ) -> Iterator[tuple[int, bytes]]:
        """(offset in .data, bytes) of seqs start <= seq < end of a sealed segment, with `ahead` chunks in advance.

        Raises TopicChanged if the segment no longer exists or was rewritten.
        """
        begin = 0 if start <= segment.first_seq else self._data_offset(topic, view, segment, start)
        stop = segment.size if end >= segment.end_seq else self._data_offset(topic, view, segment, end)
        offsets = range(begin, stop, CHUNK_BYTES)
        if len(offsets) == 1:
            yield begin, self._range(topic, view, segment, "data", begin, stop)
            return
        with ThreadPoolExecutor(ahead) as pool:
            waiting: list[tuple[int, Future[bytes]]] = []
            try:
                for offset in offsets:
                    until = min(offset + CHUNK_BYTES, stop)
                    waiting.append((offset, pool.submit(self._range, topic, view, segment, "data", offset, until)))
                    if len(waiting) >= ahead:
                        yield waiting[0][0], waiting.pop(0)[1].result()
                while waiting:
                    yield waiting[0][0], waiting.pop(0)[1].result()
            finally:
                for _, each in waiting:
                    each.cancel()

    def dead(self, topic: str, view: LogView, segment: SegmentInfo) -> bytes:
        """Empty: the broker sends deleted records with the delete byte."""
        return b""

    def data_name(self, topic: str, view: LogView, segment: SegmentInfo) -> str:
        """The name of the file in errors."""
        return self._name(topic, view, segment, "data")

    def _name(self, topic: str, view: LogView, segment: SegmentInfo, ext: str) -> str:
        at = f"?partition={view.partition}" if view.partition else ""
        return f"{self.url}{topic_path(topic)}/segments/{segment.first_seq}/{ext}{at}"

    def _data_offset(self, topic: str, view: LogView, segment: SegmentInfo, seq: int) -> int:
        """The offset in .data of `seq`, which the segment covers, or of the next record."""
        at = (seq - segment.first_seq) * ENTRY_SIZE
        entry = self._range(topic, view, segment, "idx", at, at + ENTRY_SIZE)
        try:
            return idx_entry.unpack(entry, 0).offset
        except (idx_entry.IdxDamaged, ValueError) as error:
            name = self._name(topic, view, segment, "idx")
            raise SegmentDamaged(name, at, "the checksum of the index entry fails", topic) from error

    def _range(self, topic: str, view: LogView, segment: SegmentInfo, ext: str, begin: int, end: int) -> bytes:
        etag = f"{view.topic_id}.{segment.first_seq}.{segment.generation}"
        headers = {"Range": f"bytes={begin}-{end - 1}"}
        if ext == "data":
            headers["If-Match"] = f'"{etag}"'
        target = topic_path(topic, f"/segments/{segment.first_seq}/{ext}")
        request = getting(target, {"partition": _given(view.partition)}, headers=headers)
        reply = self._run(Call(request=request, parse=lambda reply: reply), topic)
        if not reply.headers.get("etag", "").strip('"').startswith(etag):
            raise TopicChanged(f"{topic}: segment {segment.first_seq} was rewritten.")
        if reply.status != 206 or len(reply.body) != end - begin:
            # If the file is deleted during an answer, it ends early. The HTTP client reports most of these.
            raise TopicChanged(f"{topic}: segment {segment.first_seq} ended before byte {end}.")
        return reply.body

    def _run(self, call: Call[T], topic: str) -> T:
        try:
            return self.client.run(call)
        except TopicNotFound as error:
            raise TopicMissing(f"{topic}: the topic does not exist at {self.url}.") from error
        except InvalidRequest as error:
            if error.detail.get("field") == "partition":
                raise TopicMissing(f"{topic} at {self.url}: {error}") from error
            raise self._unreadable(f"topic {topic}", error) from error
        except NotFound as error:
            raise TopicChanged(f"{topic}: {error}") from error
        except ApiError as error:
            if error.status in (412, 416):
                raise TopicChanged(f"{topic}: {error}") from error
            if error.code == "segment_corrupt":
                raise _damaged(topic, error) from error
            raise self._unreadable(f"topic {topic}", error) from error
        except TopicsError as error:
            raise self._unreadable(f"topic {topic}", error) from error

    def _unreadable(self, what: str, error: TopicsError) -> SourceUnreadable:
        advice = "" if isinstance(error, ConnectionFailed) else " Check the URL, the token and its scopes (read)."
        return SourceUnreadable(f"Cannot read {what} from {self.url}: {error}{advice}")


class TopicMissing(SourceUnreadable):
    """The topic or the partition does not exist."""


def _given(partition: int) -> str | None:
    return str(partition) if partition else None


def _damaged(topic: str, error: ApiError) -> PipelineError:
    detail: dict[str, Any] = error.detail
    offset = detail.get("offset")
    return SegmentDamaged(
        str(detail.get("file", "?")), int(offset) if isinstance(offset, int) else 0, str(error), topic
    )


def _parse_view(reply: Reply) -> LogView:
    return _VIEW.decode(reply.body)


def records_after(topic: str, after_seq: int, *, limit: int, partition: int | None) -> Call[tuple[list[Row], int]]:
    """The records after a seq, at most `limit`, and the seq to continue after."""
    call = read(
        topic,
        after_seq,
        {"limit": limit, "include_tags": True, "include_stored": True, "partition": partition or None},
    )

    def parse(reply: Reply) -> tuple[list[Row], int]:
        found = _DIFF.decode(reply.body)
        return [_row(each) for each in found.records], found.next_from_seq

    return Call(request=call.request, parse=parse)


def _row(record: _Record) -> Row:
    return Row(
        record.seq,
        record.ts,
        None if record.tag is None else record.tag.encode(),
        None if record.node is None else record.node.encode(),
        bytes(record.data),
        bytes(record.meta) or None,
        record.stored,
    )
