"""Checks that every acknowledged write is there: under its seqs, whole, in order, once.

The generator notes the number of each acknowledged write with its seqs; every record carries the number of its write
and its index in the write. A write that was sent but not acknowledged may be there or not, but never in part.
"""

from __future__ import annotations

import os
from array import array

import msgspec

from loadtest.own_broker import ask

_PAGE = 1000


class _Data(msgspec.Struct):
    write: str
    index: int


class _Record(msgspec.Struct):
    data: _Data
    seq: int = msgspec.field(name="$seq")


class _Page(msgspec.Struct):
    records: list[_Record]
    next_from_seq: int
    caught_up: bool
    tombstone: dict[str, object] | None


class Verdict(msgspec.Struct, kw_only=True):
    """`problems` names missing or wrong records, at most a few per topic."""

    acknowledged: int = 0
    found: int = 0
    unacknowledged: int = 0
    problems: list[str] = msgspec.field(default_factory=list[str])

    @property
    def holds(self) -> bool:
        return not self.problems


def load(path: str) -> list[tuple[int, int, int, int]]:
    """(write number, topic, first seq, last seq) of each acknowledged write."""
    rows = array("Q")
    with open(path, "rb") as file:
        rows.fromfile(file, os.path.getsize(path) // rows.itemsize)
    return list(zip(rows[0::4], rows[1::4], rows[2::4], rows[3::4], strict=True))


def verify(host: str, port: int, path: str, topics: list[str], batch: int) -> Verdict:
    """Read everything and compare it with the ledger at `path`, whose topics are numbered as in the list."""
    acked = load(path)
    verdict = Verdict(acknowledged=len(acked) * batch)
    for topic, name in enumerate(topics):
        mine = {number: first for number, index, first, _ in acked if index == topic}
        for number, index, first, last in acked:
            if index == topic and last - first + 1 != batch:
                verdict.problems.append(f"write {number} of {batch} records was given seqs {first} to {last}")
        _compare(stored(host, port, name), mine, batch, name, verdict)
    return verdict


def _compare(
    found: dict[int, tuple[int, int]], acked: dict[int, int], batch: int, topic: str, verdict: Verdict
) -> None:
    writes: dict[int, list[int]] = {}
    for seq, (write, index) in found.items():
        writes.setdefault(write, []).append(seq - index)
    problems: list[str] = []
    for write, first in acked.items():
        if writes.get(write) != [first] * batch:
            problems.append(f"{topic}: write {write}, acknowledged with first_seq {first}, is not there as it was sent")
    for write, firsts in writes.items():
        if write not in acked:
            verdict.unacknowledged += len(firsts)
            if len(firsts) != batch or len(set(firsts)) != 1:
                problems.append(f"{topic}: write {write}, never acknowledged, is there in part or twice")
    verdict.found += len(found)
    verdict.problems += problems[:5]
    if len(problems) > 5:
        verdict.problems.append(f"{topic}: and {len(problems) - 5} more")


def stored(host: str, port: int, topic: str) -> dict[int, tuple[int, int]]:
    """seq → (write number, index) of all records of a topic. Fails at a gap: no loss is expected here."""
    found: dict[int, tuple[int, int]] = {}
    from_seq = 0
    while True:
        body = b'{"from_seq":%d,"limit":%d,"max_batch_bytes":8388608}' % (from_seq, _PAGE)
        status, text = ask(host, port, "POST", f"/v0/topics/{topic}/diff", body)
        if status != 200:
            raise RuntimeError(f"reading {topic} was answered {status}: {text[:200]!r}")
        page = msgspec.json.decode(text, type=_Page)
        if page.tombstone is not None:
            raise RuntimeError(f"{topic} announces a loss: {page.tombstone}")
        for each in page.records:
            found[each.seq] = (int(each.data.write), each.data.index)
        from_seq = page.next_from_seq
        if page.caught_up:
            return found
