"""Compares what a broker serves after a restart with what clients were told before it died.

Each function raises AssertionError with a sentence about the first difference.
"""

from __future__ import annotations

from tests.support.kill_ledger import Book, Expectation, Outcome, Write
from tests.support.kill_view import Gap, View

Found = dict[str, dict[int, int]]


def check_topic(book: Book, view: View) -> None:
    """Nothing acknowledged is missing, nothing is invented, batches are whole, seqs are used once and have no gaps.

    Writes with an unknown outcome that are there get their `first_seq`. Announced losses are forgotten.
    """
    _check_state(book, view)
    if book.cap:
        _check_cap(book, view)
    found = _traced(book, view)
    _remember_sightings(book)
    for write in list(book.writes.values()):
        _check_write(book, write, found.get(write.name, {}), view)
    _check_cover(book, view)
    book.seen.clear()
    book.base = view.state["head_seq"]
    book.setting = book.asked_setting = view.state["config"]["lease_ms"] - 1000


def _check_state(book: Book, view: View) -> None:
    state, records = view.state, view.records
    head = state["head_seq"]
    assert head >= max(book.base, book.acked_seq), f"{book.topic}: seq {book.acked_seq} was given out, head is {head}"
    assert state["next_seq"] == head + 1
    assert state["count"] == len(records), f"{book.topic}: {state['count']} counted, {len(records)} served"
    assert state["earliest_seq"] == (records[0]["$seq"] if records else head + 1)
    setting = state["config"]["lease_ms"] - 1000
    assert book.setting <= setting <= book.asked_setting, (
        f"{book.topic}: setting {book.setting} was acknowledged, {book.asked_setting} asked for, it is {setting}"
    )
    assert book.turns or state["config"]["durability"] == book.durability
    stamps = [record["$ts"] for record in records]
    assert stamps == sorted(stamps), f"{book.topic}: times go backwards"


def _check_cap(book: Book, view: View) -> None:
    """Of a topic that nobody deletes from, the newest records are there, and the others are announced as evicted.

    For all other checks, evicted records count as deleted.
    """
    lost = [gap for gap in view.gaps if gap.reason == "crash"]
    given = range(1, view.state["head_seq"] + 1)
    wanted = [seq for seq in given if not any(gap.first <= seq <= gap.last for gap in lost)][-book.cap :]
    seqs = [record["$seq"] for record in view.records]
    assert seqs == wanted, f"{book.topic}: {_ends(seqs)} are there, {_ends(wanted)} should be"
    first = wanted[0] if wanted else 1
    evicted = [Gap(1, first - 1, "cap")] if first > 1 else []
    assert view.gaps == [*evicted, *lost], f"{book.topic}: {view.gaps} is announced, records below {first} are evicted"
    book.floor = book.possible_floor = first


def _ends(seqs: list[int]) -> str:
    return f"{len(seqs)} records from {seqs[0]} to {seqs[-1]}" if seqs else "no records"


def _traced(book: Book, view: View) -> Found:
    """Every record served was written by somebody, as it is. Returns where the parts of writes are."""
    found: Found = {}
    before = 0
    for record in view.records:
        seq, data = record["$seq"], record["data"]
        assert seq > before, f"{book.topic}: seq {seq} is served after {before}"
        before = seq
        name, index = data["write"], data["index"]
        assert name not in book.refused, f"{book.topic}: seq {seq} is of {name}, which was refused"
        write = book.writes.get(name)
        assert write is not None, f"{book.topic}: seq {seq} is of {name}, which is deleted or nobody's"
        served = {field: value for field, value in record.items() if field not in ("$seq", "$ts")}
        assert served == write.served(index), f"{book.topic}: seq {seq} is not what was written"
        parts = found.setdefault(name, {})
        assert index not in parts, f"{book.topic}: {name}[{index}] has seqs {parts[index]} and {seq}"
        parts[index] = seq
    return found


def _remember_sightings(book: Book) -> None:
    """A record that a reader got has a seq, whether or not its writer was answered."""
    for seq, (name, index) in book.seen.items():
        write = book.writes.get(name)
        if write is not None:
            _place(book, write, seq - index)


def _place(book: Book, write: Write, first_seq: int) -> None:
    known = write.first_seq
    assert known in (None, first_seq), f"{book.topic}: {write.name} began at {known} and now at {first_seq}"
    write.first_seq = first_seq


def _check_write(book: Book, write: Write, parts: dict[int, int], view: View) -> None:
    for index, seq in parts.items():
        _place(book, write, seq - index)
    if write.first_seq is None:
        return  # the outcome was unknown, and it is not there
    missing = [index for index in range(write.count) if index not in parts]
    for index in parts:
        assert book.fate(write, index) is not Expectation.GONE, (
            f"{book.topic}: seq {parts[index]} was deleted and is back"
        )
    lost = [index for index in missing if book.fate(write, index) is Expectation.LIVE]
    assert not (parts and lost), f"{book.topic}: {write.name} is torn: of {write.count} records {lost} are missing"
    assert not (lost and write.kept), (
        f"{book.topic} ({book.durability}): {write.name} was {write.outcome.value} with seqs from "
        f"{write.first_seq}, and is lost"
    )
    for index in lost:
        assert announced(view, write.first_seq + index), f"{book.topic}: seq {write.first_seq + index} went silently"
    if not parts and not write.kept:
        del book.writes[write.name]


def announced(view: View, seq: int) -> bool:
    """Whether the seq is in a gap that is announced as made by a crash."""
    return any(gap.first <= seq <= gap.last and gap.reason == "crash" for gap in view.gaps)


def _check_cover(book: Book, view: View) -> None:
    """No seq belongs to two writes. One that belongs to none was deleted, or is announced as lost."""
    if book.tight and not book.cap:
        may_be = book.torn and book.durability != "fsync"
        unfounded = [gap for gap in view.gaps if not (may_be and gap.reason == "crash")]
        assert not unfounded, f"{book.topic}: a loss is announced where nothing is lost: {unfounded}"
    for record in view.records:
        assert not announced(view, record["$seq"]), f"{book.topic}: seq {record['$seq']} is there and said to be lost"
    spans = sorted(
        (write.first_seq, write.first_seq + write.count)
        for write in book.writes.values()
        if write.first_seq is not None
    )
    free = 1
    for first, end in [*spans, (view.state["head_seq"] + 1, 0)]:
        assert first >= free, f"{book.topic}: seq {first} was given out twice"
        for seq in range(max(free, book.possible_floor), first):
            assert announced(view, seq), f"{book.topic}: seq {seq} was given to nobody"
        free = end


def adopt(book: Book) -> None:
    """What is there after a restart is in the log, so from now on it must be kept."""
    for write in book.writes.values():
        if write.first_seq is not None:
            write.kept = True
            if write.outcome is Outcome.UNKNOWN and write.key is None:
                book.acknowledge(write, write.first_seq)
