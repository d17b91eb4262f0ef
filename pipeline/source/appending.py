"""Appends the rows of a task to a topic, each exactly once, for any number of tries and any order of the rows.

The appends of a task are numbered, and the number is part of the idempotency key. The first append with a number
decides its content: the broker stores it, and tells all others that their records differ. A try uses a number only when
it knows the content of all lower numbers, and appends only rows that are not in them. So for any tries, consecutive or
concurrent, all numbers together contain a subset of the task's rows, without repetition. A try that succeeds has
checked that they contain all rows.

    answer of the broker               action
    stored, now or before              continue with the next chunk and number
    stored before, with other records  an earlier try had another order: read back what it stored, number by number; put
                                       the rows of this try aside (on disk) and compare; append what is missing with the
                                       next free numbers

Rows are compared by content. Equal rows are counted, and stored as often as the task has them. If an earlier try has
stored rows that this one does not have, its input was different: that is refused before anything is added, unless the
options allow it. Memory holds a few chunks, for any number of rows.
"""

from __future__ import annotations

import sqlite3
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import NamedTuple, Self, cast
from urllib.parse import quote

import msgspec

from pipeline.broker import records_after
from pipeline.errors import BadOption, OtherRows, SourceUnreadable, counted
from pipeline.source.rows import AnyRow, RawRow, Row, digest_of
from storage.records import partition_of
from topics_client import Client, SeqConflict
from topics_client.values import Appended
from topics_client.wire import Call, Request

#: The most rows of an append; it also ends when it has this many bytes.
CHUNK_RECORDS = 1000
CHUNK_BYTES = 4 << 20
#: The most bytes in all incomplete chunks for several partitions.
FILLING_BYTES = 4 * CHUNK_BYTES
#: After this many consecutive unused numbers, all later ones are unused. (A crash may lose one and keep a later one, if
#: they are in different partitions and the topic's class allows it.)
HOLES = 16
#: Never a last seq: an append that expects it only shows whether its key is known.
_NEVER = (1 << 62) - 1
_SPOOL_BYTES = 8 << 20
_LENGTH = struct.Struct("<I")


class Route(NamedTuple):
    """Where a chunk goes, and through which API. `partition` None: the broker chooses."""

    raw: bool
    partition: int | None


Chunk = tuple[Route, list[AnyRow]]
_row = msgspec.msgpack.Decoder(Row | RawRow)


class Filling:
    """Incomplete chunks, one for each partition of keys. Chunks depend only on the order of rows."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._rows: dict[Route, list[AnyRow]] = {}
        self._sizes: dict[Route, int] = {}

    def put(self, row: AnyRow) -> Iterator[Chunk]:
        """Add a row. Yields the chunks that are full now. Raises BadOption for a missing partition."""
        at = Route(isinstance(row, RawRow), self._partition(row))
        rows = self._rows.setdefault(at, [])
        rows.append(row)
        self._sizes[at] = self._sizes.get(at, 0) + row.size
        if len(rows) >= CHUNK_RECORDS or self._sizes[at] >= CHUNK_BYTES:
            yield self._take(at)
        elif sum(self._sizes.values()) >= FILLING_BYTES:
            yield self._take(max(self._sizes, key=lambda each: self._sizes[each]))

    def rest(self) -> Iterator[Chunk]:
        """The incomplete chunks."""
        while self._rows:
            yield self._take(next(iter(self._rows)))

    def _partition(self, row: AnyRow) -> int | None:
        if (wanted := row.partition) is not None and not 0 <= wanted < self._partitions:
            raise BadOption(
                f"A row has partition {wanted}, but the topic has {self._partitions}, counted from 0. Drop the column "
                "partition, and the key decides; or add partitions to the topic."
            )
        if self._partitions == 1:
            return None
        if wanted is not None:
            return wanted
        return None if row.key is None else partition_of(row.key, self._partitions)

    def _take(self, at: Route) -> Chunk:
        del self._sizes[at]
        return at, self._rows.pop(at)


class TaskLog:
    """The appends of a task to one topic. Use it in a `with` block, and call `finish`."""

    def __init__(self, client: Client, topic: str, key: str, *, append_others: bool = False) -> None:
        self._client = client
        self._topic = topic
        self._key = key
        self._append_others = append_others
        self._partitions = max(1, len(client.state(topic, touch=False).partitions))
        self._filling = Filling(self._partitions)
        self._next = 0
        #: Used numbers above `_next` that have been read.
        self._read: set[int] = set()
        self._stack = ExitStack()
        #: Set when an earlier try is found that had the rows in another order.
        self._earlier: _Multiset | None = None
        self._aside: _Spool | None = None
        self.rows = 0
        #: Whether an earlier try has stored anything.
        self.repeated = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def add(self, row: AnyRow) -> None:
        """Add a row. Raises TopicsError, OtherRows."""
        self.rows += 1
        if self._aside is not None:
            self._aside.put(row)
            return
        for chunk in self._filling.put(row):
            self._append(chunk)

    def finish(self) -> None:
        """On return, all rows are stored, each once. Raises TopicsError, OtherRows."""
        for chunk in self._filling.rest():
            self._append(chunk)
        if self._aside is not None and self._earlier is not None:
            self._append_missing(self._aside, self._earlier)

    def _append(self, chunk: Chunk) -> None:
        done = self._send(chunk)
        if not done.payload_differs:
            return
        self._earlier = self._stack.enter_context(_Multiset())
        self._aside = self._stack.enter_context(_Spool())
        self._take_in(done, self._earlier)
        self._look_ahead(self._earlier)
        for _, rows in [chunk, *self._filling.rest()]:
            for row in rows:
                self._aside.put(row)

    def _send(self, chunk: Chunk) -> Appended:
        """Append with the next free number. The number is then used, by this try or another."""
        at, rows = chunk
        while self._next in self._read:
            self._next += 1
        key = f"{self._key}-{self._next}"
        if at.raw:
            raw = [row for row in rows if isinstance(row, RawRow)]
            done = produce(self._client, self._topic, raw, key, at.partition, self._partitions)
        else:
            records = [row.record for row in rows if isinstance(row, Row)]
            done = self._client.append(self._topic, records, idempotency_key=key, partition=at.partition)
        self._next += 1
        self.repeated = self.repeated or done.deduped
        return done

    def _append_missing(self, aside: _Spool, earlier: _Multiset) -> None:
        with _Spool() as missing:
            for row in aside.rows():
                if not earlier.take(row.digest):
                    missing.put(row)
            self._refuse_others(earlier, "Nothing was added.")
            for row in missing.rows():
                for chunk in self._filling.put(row):
                    self._append_rest(chunk, earlier)
            for chunk in self._filling.rest():
                self._append_rest(chunk, earlier)
        self._refuse_others(earlier, "Another try of it is running, with other rows.")

    def _append_rest(self, chunk: Chunk, earlier: _Multiset) -> None:
        """Append the missing rows of a chunk. A concurrent try may store some of them before."""
        at, rows = chunk
        while rows := [row for row in rows if not earlier.take(row.digest)]:
            done = self._send((at, rows))
            if not done.payload_differs:
                return
            self._take_in(done, earlier)

    def _refuse_others(self, earlier: _Multiset, what: str) -> None:
        if (left := earlier.left()) and not self._append_others:
            raise OtherRows(
                f"{self._topic}: an earlier try of this task has stored {counted(left, 'row')} that this one does not "
                f"have. {what} A retried task must have the same rows, in any order: persist or checkpoint random or "
                "changing input. With differentRows=append, those rows stay and missing ones are added; a row that has "
                "moved to another task is then stored twice."
            )

    # -- what earlier tries have stored ------------------------------------------------------------------------------

    def _look_ahead(self, earlier: _Multiset) -> None:
        number, empty = self._next, 0
        while empty < HOLES:
            done = probe(self._client, self._topic, f"{self._key}-{number}")
            if done is None:
                empty += 1
            else:
                empty = 0
                self._read.add(number)
                self._take_in(done, earlier)
            number += 1

    def _take_in(self, done: Appended, earlier: _Multiset) -> None:
        after, last, there = done.first_seq - 1, done.last_seq, 0
        while after < last:
            limit = min(CHUNK_RECORDS, last - after)
            found, following = self._client.run(
                records_after(self._topic, after, limit=limit, partition=done.partition)
            )
            records = [record for record in found if record.seq <= last]
            earlier.put(digest_of(record) for record in records)
            there += len(records)
            if following <= after:
                break
            after = following
        if there != done.count:
            raise OtherRows(
                f"{self._topic}: an earlier try of this task stored its rows in another order, and of its records from "
                f"seq {done.first_seq} to {last} {done.count - there} are deleted or evicted. So it is unknown "
                "which rows are missing; nothing was added. Make the order of the rows the same in all tries (sort "
                "within partitions, persist), or retain records for longer."
            )


def probe(client: Client, topic: str, key: str) -> Appended | None:
    """What is stored with a key; None: nothing. This stores nothing."""
    try:
        return client.append(topic, [b"null"], idempotency_key=key, expected_seq=_NEVER, create=False)
    except SeqConflict:
        return None


class _Produced(msgspec.Struct):
    """The answer of the REST Proxy's API for one record."""

    offset: int | None = None
    error: str | None = None
    deduped: bool = False
    payload_differs: bool = False


class _AllProduced(msgspec.Struct):
    offsets: list[_Produced]


_all_produced = msgspec.json.Decoder(_AllProduced)
_BINARY = "application/vnd.kafka.binary.v2+json"
_ACCEPTED = "application/vnd.kafka.v2+json"


def produce(
    client: Client, topic: str, rows: Sequence[RawRow], key: str, partition: int | None, partitions: int
) -> Appended:
    """Append keys, values and headers as bytes. Raises TopicsError, SourceUnreadable."""
    # An earlier try decided about the partition, perhaps when the topic had fewer.
    before = probe(client, topic, key) if partitions > 1 else None
    if before is not None and before.partition is not None:
        partition = before.partition
    elif partition is None:
        partition = partition_of(key.encode(), partitions) if partitions > 1 else 0
    request = Request(
        method="POST",
        target=f"/topics/{quote(topic, safe='')}/partitions/{partition}",
        body=msgspec.json.encode({"records": [row.as_produced() for row in rows]}),
        headers={"Content-Type": _BINARY, "Accept": _ACCEPTED, "Idempotency-Key": key},
    )
    answers = client.run(Call(request=request, parse=lambda reply: _all_produced.decode(reply.body))).offsets
    for each in answers:
        if each.error is not None or each.offset is None:
            raise SourceUnreadable(
                f"Cannot append to partition {partition} of {topic}: {each.error} Trying the task again writes no row "
                "of it twice."
            )
    first = answers[0]
    assert first.offset is not None
    if first.payload_differs:
        there = probe(client, topic, key)
        if there is None:
            raise SourceUnreadable(f"{topic} has forgotten the idempotency key of a task while it was being written.")
        return msgspec.structs.replace(there, deduped=True, payload_differs=True)
    return Appended(
        topic=topic,
        first_seq=first.offset + 1,
        last_seq=first.offset + len(rows),
        head_seq=first.offset + len(rows),
        count=len(rows),
        deduped=first.deduped,
        partition=partition if partitions > 1 else None,
    )


class _Multiset:
    """Digests with counts; on disk if there are many."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE rows (digest BLOB PRIMARY KEY, there INTEGER NOT NULL) WITHOUT ROWID")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def put(self, digests: Iterable[bytes]) -> None:
        self._database.executemany(
            "INSERT INTO rows VALUES (?, 1) ON CONFLICT (digest) DO UPDATE SET there = there + 1",
            ((digest,) for digest in digests),
        )

    def take(self, digest: bytes) -> bool:
        """Remove one of a digest. False: there was none."""
        done = self._database.execute("UPDATE rows SET there = there - 1 WHERE digest = ? AND there > 0", (digest,))
        with closing(done):
            return done.rowcount == 1

    def left(self) -> int:
        found = self._database.execute("SELECT coalesce(sum(there), 0) FROM rows").fetchone()
        return cast("int", found[0])


class _Spool(tempfile.SpooledTemporaryFile[bytes]):
    """Rows in order; on disk if there are many."""

    def __init__(self) -> None:
        super().__init__(_SPOOL_BYTES)

    def put(self, row: AnyRow) -> None:
        body = msgspec.msgpack.encode(row)
        self.write(_LENGTH.pack(len(body)))
        self.write(body)

    def rows(self) -> Iterator[AnyRow]:
        """All rows. After that, no more can be put."""
        self.seek(0)
        while head := self.read(_LENGTH.size):
            yield _row.decode(self.read(_LENGTH.unpack(head)[0]))
