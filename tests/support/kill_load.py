"""Writers, readers, deleters and administrators that keep a broker busy until it goes away.

They note each request in the ledger before they send it, and each answer. All of them end when their connection ends.
Any other failure ends the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from tests.support.kill_connection import Connection, Cut
from tests.support.kill_ledger import Book, Deletion, Outcome, Write, tick

#: Writers of each class of durability.
WRITERS = 16
TOPICS_PER_CLASS = 2
#: Writers of each topic with a cap.
CAP_WRITERS = 4
CLASSES = ("fsync", "disk", "memory", "ephemeral")
KEPT_CLASSES = CLASSES[:3]
CHURNED = 4
#: A log is trimmed to this many live records, so that long runs do not read more and more.
RETAINED = 1000
#: The most records in a topic with a cap: fewer than some segments of a test hold.
CAP = 230
LOAD_S = 90.0

#: Refusals that a broker under pressure or during a stop may give. Nothing happened then.
_ALLOWED = {"shutting_down", "wal_saturated"}


class Ledger:
    """All topics of a directory, and how often each outcome occurred."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.fixed = [
            Book(f"{durability}-{number}", durability, tight=durability != "ephemeral")
            for durability in CLASSES
            for number in range(TOPICS_PER_CLASS)
        ]
        self.capped = [Book(f"capped-{durability}", durability, cap=CAP) for durability in ("fsync", "disk")]
        self.turning = Book("turning", "disk", tight=False, turns=True)
        self.churned: dict[str, Book | None] = {f"churned-{number}": None for number in range(CHURNED)}
        self.counts = dict.fromkeys(Outcome, 0)

    def books(self) -> list[Book]:
        """Every topic that exists, or may exist."""
        return [*self.fixed, *self.capped, self.turning, *(book for book in self.churned.values() if book is not None)]

    async def create(self, port: int) -> None:
        """Make the permanent topics."""
        async with Connection(port) as connection:
            for book in (*self.fixed, *self.capped, self.turning):
                await put(connection, book)


async def put(connection: Connection, book: Book, **changes: Any) -> None:
    """Create the topic or change its settings."""
    body = book.config(**changes)
    asked = book.asked_setting
    status, answer = await connection.call("PUT", f"/v0/topics/{book.topic}", body)
    _expect(status, answer)
    book.setting = asked


def _expect(status: int, answer: Any) -> None:
    if status in (200, 201):
        return
    assert answer["error"]["code"] in _ALLOWED, answer
    raise Cut(sent=_perhaps_done(answer))


def _perhaps_done(answer: Any) -> bool:
    return answer["error"].get("detail", {}).get("outcome") == "unknown"


class Load:
    """The load of one process. Everything runs until the process ends."""

    def __init__(self, ledger: Ledger, port: int, acks: int, end: Callable[[], None]) -> None:
        self._ledger = ledger
        self._dice = ledger.dice
        self._port = port
        self._acks_left = acks
        self._end = end

    async def run(self) -> None:
        """Run until all connections have ended. `end` is called on the loop soon after this many acks."""
        ledger = self._ledger
        async with asyncio.timeout(LOAD_S), asyncio.TaskGroup() as tasks:
            for book in ledger.fixed:
                for number in range(WRITERS // TOPICS_PER_CLASS):
                    tasks.create_task(_until_cut(self._write(book, f"{book.topic}-w{number}")))
                tasks.create_task(_until_cut(self._administer(book)))
            for book in ledger.capped:
                for number in range(CAP_WRITERS):
                    tasks.create_task(_until_cut(self._write(book, f"{book.topic}-w{number}")))
            for book in ledger.fixed[::TOPICS_PER_CLASS]:
                if book.tight:
                    tasks.create_task(_until_cut(self._read(book)))
            for name in ledger.churned:
                tasks.create_task(_until_cut(self._churn(name)))
            tasks.create_task(_until_cut(self._turn(ledger.turning)))

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _write(self, book: Book, node: str) -> None:
        async with Connection(self._port) as connection:
            while True:
                await self._append(connection, book, book.new_write(node, self._dice))

    async def _append(self, connection: Connection, book: Book, write: Write, **fields: Any) -> None:
        book.enter(write)
        try:
            status, answer = await connection.call("POST", f"/v0/topics/{book.topic}", write.body() | fields)
            _expect(status, answer)
        except Cut as cut:
            if not cut.sent:
                book.refuse(write)
            self._ledger.counts[Outcome.UNKNOWN if cut.sent else Outcome.FAILED] += 1
            raise
        first_seq = answer["first_seq"]
        assert first_seq > book.base, f"{book.topic}: seq {first_seq} was given out before the restart"
        assert not answer["deduped"]
        assert answer["seqs"] == list(range(first_seq, first_seq + write.count))
        book.acknowledge(write, first_seq)
        self._ledger.counts[Outcome.OK] += 1
        self._acks_left -= 1
        if self._acks_left == 0:
            self._end_soon()

    def _end_soon(self) -> None:
        # At the very moment of an answer its promise is most at risk. A little later anything may be in progress.
        if self._dice.random() < 0.5:
            self._end()
        else:
            asyncio.get_running_loop().call_later(self._dice.uniform(0, 0.02), self._end)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, book: Book) -> None:
        """Follow the topic: what a reader got must be there after the restart as well."""
        cursor = book.base
        async with Connection(self._port) as connection:
            while True:
                body = {"from_seq": cursor, "limit": 1000, "wait_ms": 20_000}
                status, answer = await connection.call("POST", f"/v0/topics/{book.topic}/diff", body)
                _expect(status, answer)
                assert answer["tombstone"] is None, answer["tombstone"]
                for record in answer["records"]:
                    assert record["$seq"] > cursor
                    cursor = record["$seq"]
                    book.seen[cursor] = (record["data"]["write"], record["data"]["index"])
                cursor = answer["next_from_seq"]

    # -- deleting and changing ---------------------------------------------------------------------------------------

    async def _administer(self, book: Book) -> None:
        async with Connection(self._port) as connection:
            while True:
                await asyncio.sleep(self._dice.uniform(0.01, 0.1))
                if self._dice.random() < 0.3:
                    await put(connection, book)
                else:
                    await delete_records(connection, book, self._deletion(book))

    def _deletion(self, book: Book) -> Deletion:
        before_seq = book.acked_seq - RETAINED
        if before_seq > book.floor and self._dice.random() < 0.7:
            return Deletion(before_seq=before_seq)
        return Deletion(tag=self._dice.choice(("t1", "t2", "g")))

    async def _churn(self, name: str) -> None:
        """Make a topic, write to it from several clients, delete it, and repeat with the same name."""
        async with Connection(self._port) as connection:
            while True:
                book = self._ledger.churned[name]
                if book is None:
                    book = await self._make(connection, name)
                for _ in range(self._dice.randrange(3)):
                    writes = [book.new_write(f"{name}-w{number}", self._dice) for number in range(4)]
                    async with asyncio.TaskGroup() as tasks:
                        for write in writes:
                            tasks.create_task(_until_cut(self._append_apart(book, write)))
                    await delete_records(connection, book, self._deletion(book))
                if self._dice.random() < 0.7:
                    await self._remove(connection, name, book)

    async def _append_apart(self, book: Book, write: Write) -> None:
        async with Connection(self._port) as connection:
            await self._append(connection, book, write)

    async def _make(self, connection: Connection, name: str) -> Book:
        book = Book(name, self._dice.choice(KEPT_CLASSES))
        book.in_doubt = True
        self._ledger.churned[name] = book
        if self._dice.random() < 0.5:
            await put(connection, book)
        else:
            book.made_by_write = True
            write = book.new_write(f"{name}-w0", self._dice)
            await self._append(connection, book, write, config=book.config())
            book.setting = book.asked_setting
        book.exists, book.in_doubt = True, False
        return book

    async def _remove(self, connection: Connection, name: str, book: Book) -> None:
        book.in_doubt = True
        status, answer = await connection.call("DELETE", f"/v0/topics/{name}")
        _expect(status, answer)
        assert answer["deleted"] is True
        self._ledger.churned[name] = None

    async def _turn(self, book: Book) -> None:
        """Take a topic in and out of memory, with nobody else using it. What was in memory only is kept from the way
        out on."""
        async with Connection(self._port) as connection:
            while True:
                await put(connection, book, durability=self._dice.choice(KEPT_CLASSES))
                for write in book.writes.values():
                    write.kept = True
                await self._append_some(connection, book, kept=True)
                await put(connection, book, durability="ephemeral")
                await self._append_some(connection, book, kept=False)
                if self._dice.random() < 0.3:
                    await delete_records(connection, book, self._deletion(book))

    async def _append_some(self, connection: Connection, book: Book, *, kept: bool) -> None:
        for _ in range(self._dice.randrange(6)):
            write = book.new_write("turner", self._dice)
            write.kept = kept
            await self._append(connection, book, write)


async def delete_records(connection: Connection, book: Book, deletion: Deletion) -> None:
    """Send the request, or repeat it."""
    if deletion.asked:
        deletion.asked = tick()
    else:
        book.new_deletion(deletion)
    status, answer = await connection.call("POST", f"/v0/topics/{book.topic}/delete", deletion.body())
    _expect(status, answer)
    book.deleted(deletion)


async def _until_cut(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Cut:
        return
