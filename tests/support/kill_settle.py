"""After a restart: compare everything, then find out what was unknown by repeating requests with the same keys."""

from __future__ import annotations

from typing import Any

from tests.support.kill_check import adopt, check_topic
from tests.support.kill_connection import Connection
from tests.support.kill_ledger import Book, Outcome, Write, tick
from tests.support.kill_load import Ledger, delete_records
from tests.support.kill_view import View

#: At most this many of the keys acknowledged in a round are tried again.
KEYS_TRIED = 60


def check(ledger: Ledger, found: dict[str, View], *, torn: bool = False) -> None:
    """Compare all topics: which exist, and what is in them. `torn`: a start has cut off the torn end of a log."""
    if torn:
        for book in ledger.books():
            book.torn = True
    for name, book in list(ledger.churned.items()):
        if book is None:
            continue
        view = found.get(name)
        if view is None:
            assert book.in_doubt, f"{name} existed, and its deletion was not asked for"
            ledger.churned[name] = None
        else:
            assert book.exists or book.in_doubt
            check_topic(book, view)
            made = book.exists or not book.made_by_write
            placed = any(write.first_seq is not None for write in book.writes.values())
            assert made or placed, f"{name} is there without the write that made it"
            book.exists, book.in_doubt = True, False
    for book in (*ledger.fixed, *ledger.capped, ledger.turning):
        assert book.topic in found, f"{book.topic} is gone"
        check_topic(book, found[book.topic])
    expected = {book.topic for book in ledger.books()}
    assert set(found) == expected, f"deleted topics are back: {set(found) - expected}"


async def settle(ledger: Ledger, connection: Connection) -> int:
    """Repeat all requests with unknown outcomes, and try acknowledged keys. Returns how many writes were unknown and
    there."""
    there = 0
    for book in ledger.books():
        adopt(book)
        acknowledged = [
            (write.key, write.first_seq, write.count)
            for write in book.writes.values()
            if write.outcome is Outcome.OK and write.kept and write.key is not None and write.first_seq is not None
        ]
        for write in list(book.writes.values()):
            if write.outcome is Outcome.UNKNOWN:
                there += write.first_seq is not None
                await _settle_write(connection, book, write)
        for deletion in book.deletions:
            if deletion.outcome is Outcome.UNKNOWN:
                await delete_records(connection, book, deletion)
        keys = [*acknowledged[-KEYS_TRIED // 2 :], *book.old_keys]
        for key, first_seq, count in ledger.dice.sample(keys, min(KEYS_TRIED, len(keys))):
            await _try_key(connection, book, key, first_seq, count)
        book.forget_deleted()
    return there


async def _settle_write(connection: Connection, book: Book, write: Write) -> None:
    if write.key is None:
        book.refuse(write)  # not there, and nobody will repeat it: it must never appear
        return
    asked = tick()
    answer = await _again(connection, book, write.body())
    if write.first_seq is not None:
        assert answer["deduped"], f"{book.topic}: {write.name} is there, and its key is not known"
        assert answer["first_seq"] == write.first_seq
        assert answer["count"] == write.count
    elif answer["deduped"]:
        # It had been there and was deleted. Only below a floor can all of it be gone.
        assert answer["last_seq"] < book.possible_floor, (
            f"{book.topic}: the key of {write.name} is known, not its write"
        )
    else:
        assert answer["first_seq"] > book.base
        write.asked = asked
    book.acknowledge(write, answer["first_seq"])


async def _try_key(connection: Connection, book: Book, key: str, first_seq: int, count: int) -> None:
    """Whatever the payload, an acknowledged key returns its first seqs, and nothing is appended."""
    answer = await _again(connection, book, {"records": [{"data": "another"}], "idempotency_key": key})
    assert answer["deduped"], f"{book.topic}: {key} was acknowledged with seq {first_seq}, and is not known"
    assert (answer["first_seq"], answer["count"]) == (first_seq, count)
    assert answer["payload_differs"]


async def _again(connection: Connection, book: Book, body: dict[str, Any]) -> Any:
    status, answer = await connection.call("POST", f"/v0/topics/{book.topic}", body)
    assert status == 200, answer
    return answer
