"""The tail index against a plain list of records: rows are appended, placed, truncated, dropped and deleted in any
order."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.records.batches import AppendedRecords
from storage.state.tail import TailIndex

ITEMS = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=1, max_size=6)
FRACTION = st.integers(0, 40).map(lambda part: part / 40)


@dataclass(slots=True)
class Row:
    """A batch in the model. `place`: where its unit is in the log, 0 = nowhere yet."""

    first_seq: int
    ts: int
    sizes: list[int]
    payloads: list[int]
    place: int = 0
    lead: int = 0

    @property
    def end_seq(self) -> int:
        return self.first_seq + len(self.sizes)

    def seqs(self) -> range:
        return range(self.first_seq, self.end_seq)


def run_of(row: Row) -> AppendedRecords:
    return AppendedRecords(row.first_seq, row.ts, array("I", row.sizes), array("I", row.payloads), [])


class TailModel(RuleBasedStateMachine):
    """Rows below `floor` may be forgotten at any time, so nothing is asked about them."""

    @initialize(first_seq=st.integers(1, 20), ts=st.integers(0, 100))
    def begin(self, first_seq: int, ts: int) -> None:
        self.index = TailIndex()
        self.rows: list[Row] = []
        self.numbers: dict[int, int] = {}
        self.dead: set[int] = set()
        self.floor = 1
        self.next_seq = first_seq
        self.ts = ts
        self.place = 1 << 40

    # -- what happens ------------------------------------------------------------------------------------------------

    @rule(hole=st.sampled_from([0, 0, 0, 1, 7]), later=st.integers(0, 30), items=ITEMS)
    def append(self, hole: int, later: int, items: list[tuple[int, int]]) -> None:
        self.ts += later
        row = Row(self.next_seq + hole, self.ts, [size for size, _ in items], [payload for _, payload in items])
        self.numbers[row.first_seq] = self.index.append(run_of(row))
        self.rows.append(row)
        self.next_seq = row.end_seq

    @precondition(lambda self: self.unplaced())
    @rule(lead=st.integers(0, 50), by_seq=st.booleans(), in_memory=st.booleans())
    def place_first_unplaced(self, lead: int, by_seq: bool, in_memory: bool) -> None:
        row = self.unplaced()[0]
        place = 0 if in_memory else self.place
        self.place += sum(row.sizes) + lead + 100
        if by_seq:
            self.index.set_batch_lsn(row.first_seq, place, lead)
        else:
            self.index.set_lsn(self.numbers[row.first_seq], place, lead)
        row.place, row.lead = place, lead

    @rule(first_seq=st.integers(1, 400))
    def place_a_batch_that_is_not_here(self, first_seq: int) -> None:
        if first_seq not in self.numbers:
            self.index.set_batch_lsn(first_seq, self.place, 0)

    @rule(at=FRACTION)
    def truncate(self, at: float) -> None:
        seq = self.pick(at)
        self.index.truncate(seq)
        kept = [row for row in self.rows if row.first_seq < seq]
        self.rows = kept
        self.numbers = {row.first_seq: self.numbers[row.first_seq] for row in kept}
        self.next_seq = max(seq, kept[-1].end_seq if kept else 1)
        self.dead &= {seq for row in kept for seq in row.seqs()}

    @rule(at=FRACTION)
    def drop_below(self, at: float) -> None:
        self.floor = self.pick(at)
        self.index.drop_below(self.floor)
        gone = [row.first_seq for row in self.rows if row.end_seq <= self.floor]
        self.rows = [row for row in self.rows if row.end_seq > self.floor]
        for first_seq in gone:
            del self.numbers[first_seq]

    @rule(at=FRACTION)
    def delete(self, at: float) -> None:
        seq = self.pick(at)
        live = dict(self.live())
        assert self.index.delete(seq) == live.get(seq)
        if seq in live:
            self.dead.add(seq)
        assert self.index.delete(seq) is None, "deleting again changes nothing"

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def it_knows_which_records_are_here(self) -> None:
        live = dict(self.live())
        for seq in range(self.floor, self.next_seq + 3):
            assert self.index.holds(seq) == (seq in live)
        assert [seq for seq in self.index.dead_seqs() if seq >= self.floor] == sorted(
            seq for seq in self.dead if seq >= self.floor
        )

    @invariant()
    def index_and_seq_at_are_inverse(self) -> None:
        for row in self.rows:
            for seq in row.seqs():
                assert self.index.seq_at(self.index.index(seq)) == seq
        assert self.index.index(self.next_seq) == len(self.index)

    @invariant()
    def rows_without_use_do_not_pile_up(self) -> None:
        held = sum(len(row.sizes) for row in self.rows)
        assert held <= len(self.index)

    @rule(
        a=FRACTION,
        b=FRACTION,
        back=st.integers(-5, 150),
        records=st.integers(0, 12),
        size_bytes=st.integers(0, 200),
    )
    def every_question_has_the_right_answer(self, a: float, b: float, back: int, records: int, size_bytes: int) -> None:
        first, end = sorted((self.pick(a), self.pick(b)))
        ts = max(0, self.ts - back)
        self.check_totals_and_first_live(first, end)
        self.check_cut(first, records, size_bytes)
        self.check_expired_floor(first, end, ts)
        self.check_first_seq_since(ts)
        self.check_spans(first, end)
        places = [row.place for row in self.rows if row.end_seq > first and row.place]
        assert self.index.oldest_lsn(first) == (places[0] if places else None)

    def check_totals_and_first_live(self, first: int, end: int) -> None:
        within = [(seq, size) for seq, size in self.live() if first <= seq < end]
        assert self.index.totals(first, end) == (len(within), sum(size for _, size in within))
        assert self.index.first_live(first, end) == (within[0][0] if within else None)

    def check_cut(self, seq: int, records: int, size_bytes: int) -> None:
        if not self.rows or self.rows[-1].end_seq <= seq or records + size_bytes == 0:
            return
        alive = dict(self.live())
        wanted = self.rows[-1].end_seq
        count = size = 0
        for each in (each for row in self.rows for each in row.seqs() if each >= seq):
            if each in alive:
                count, size = count + 1, size + alive[each]
            if count >= records and size >= size_bytes:
                wanted = each + 1
                break
        assert self.index.plan_eviction(seq, records, size_bytes) == (wanted, count, size)

    def check_expired_floor(self, seq: int, end: int, oldest: int) -> None:
        expired = [row.end_seq for row in self.rows if row.ts < oldest]
        wanted = max(seq, min(max(expired), end)) if expired else seq
        assert self.index.expired_floor(seq, oldest, end) == wanted

    def check_first_seq_since(self, ts: int) -> None:
        found = self.index.first_seq_since(ts)
        wanted = next((row.first_seq for row in self.rows if row.ts >= ts), None)
        if found is not None and found < self.floor and (wanted is None or found < wanted):
            return  # of a row that may be forgotten but is not yet
        assert found == wanted

    def check_spans(self, first: int, end: int) -> None:
        wanted: list[tuple[int, int, int, int, int]] = []
        for row in self.rows:
            at = row.place + row.lead if row.place else 0
            for seq, size in zip(row.seqs(), row.sizes, strict=True):
                if first <= seq < end:
                    wanted.append((row.first_seq, seq, at, row.ts, size))
                at += size
        found: list[tuple[int, int, int, int, int]] = []
        for span in self.index.slices(first, end):
            assert len(span.sizes) > 0
            gone = self.index.dead_between(span.first_seq, len(span.sizes))
            seqs = range(span.first_seq, span.first_seq + len(span.sizes))
            assert gone == (bytes(seq in self.dead for seq in seqs) if any(seq in self.dead for seq in seqs) else None)
            at = span.lsn + span.offset
            for seq, size in zip(seqs, span.sizes, strict=True):
                found.append((span.batch_seq, seq, at, span.ts, size))
                at += size
        assert found == wanted

    # -- the model ---------------------------------------------------------------------------------------------------

    def pick(self, at: float) -> int:
        """A seq from the floor to a little beyond the end."""
        return self.floor + round(at * (self.next_seq + 2 - self.floor)) if self.next_seq >= self.floor else self.floor

    def live(self) -> list[tuple[int, int]]:
        return [
            (seq, payload)
            for row in self.rows
            for seq, payload in zip(row.seqs(), row.payloads, strict=True)
            if seq not in self.dead and seq >= self.floor
        ]

    def unplaced(self) -> list[Row]:
        return [row for row in self.rows if not row.place and not row.lead]


TestTailModel = TailModel.TestCase


@given(
    runs=st.lists(st.integers(1, 1500), min_size=1, max_size=4),
    dead=st.sets(st.integers(1, 4000), max_size=40),
    start=FRACTION,
    records=st.integers(0, 4000),
    size_bytes=st.integers(0, 9000),
)
def test_a_distant_floor_is_found(runs: list[int], dead: set[int], start: float, records: int, size_bytes: int) -> None:
    index = TailIndex()
    total = sum(runs)
    first = 1
    for length in runs:
        payloads = array("I", (1 + (seq * 7) % 4 for seq in range(first, first + length)))
        index.append(AppendedRecords(first, 1, array("I", [50]) * length, payloads, []))
        first += length
    for seq in dead:
        index.delete(seq)
    seq = 1 + round(start * (total - 1))
    if records + size_bytes == 0:
        records = 1
    count = size = 0
    wanted = total + 1
    for each in range(seq, total + 1):
        if each not in dead:
            count, size = count + 1, size + 1 + (each * 7) % 4
        if count >= records and size >= size_bytes:
            wanted = each + 1
            break
    assert index.plan_eviction(seq, records, size_bytes) == (wanted, count, size)
