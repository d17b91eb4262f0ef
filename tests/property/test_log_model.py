"""A log's counts against a plain list, with writes and evictions in flight, some of which fail."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.format import control
from storage.records.batches import AppendedRecords
from storage.records.values import LossCause
from storage.state.retained import Eviction
from storage.state.usage import Usage
from tests.unit.storage.log_steps import new_log, reserve

TAGS = st.sampled_from([b"", b"a", b"b"])
BATCH = st.lists(st.tuples(st.integers(1, 50), TAGS), min_size=1, max_size=5)


@dataclass(slots=True)
class InFlight:
    """A write on its way to disk, and the cap floor that it brings."""

    run: AppendedRecords
    row: int
    floor: int
    items: dict[int, tuple[int, bytes]]


class LogModel(RuleBasedStateMachine):
    """`items`: published and live records, as seq -> (bytes, tag). Writes in flight complete in order, or all fail."""

    @initialize(ephemeral=st.booleans())
    def begin(self, ephemeral: bool) -> None:
        self.usage = Usage()
        self.log = new_log(self.usage)
        self.ephemeral = ephemeral
        self.log.set_ephemeral(ephemeral)
        self.items: dict[int, tuple[int, bytes]] = {}
        self.in_flight: list[InFlight] = []
        self.head = 0
        self.durable_head = 0
        self.place = 1 << 40

    # -- writes ------------------------------------------------------------------------------------------------------

    @rule(batch=BATCH, cap=st.none() | st.integers(1, 8))
    def enqueue(self, batch: list[tuple[int, bytes]], cap: int | None) -> None:
        first = self.log.assigned_head + 1
        items = {first + n: each for n, each in enumerate(batch)}
        tags = {seq: tag for seq, (_, tag) in items.items() if tag}
        run, row = reserve(self.log, [size for size, _ in batch], tags=tags)
        floor = 0
        if cap is not None and self.log.assigned_count > cap:
            cut = self.log.plan_eviction(self.log.assigned_count - cap, 0)
            assert isinstance(cut, Eviction), "nothing is in segments"
            self.log.assign_eviction(cut)
            floor = cut.floor
            assert self.log.assigned_count == cap
        self.in_flight.append(InFlight(run, row, floor, items))
        if self.ephemeral:
            self.commit()

    @precondition(lambda self: self.in_flight)
    @rule()
    def commit(self) -> None:
        each = self.in_flight.pop(0)
        self.log.commit(each.run, each.row, 0 if self.ephemeral else self.place, 0)
        self.place += 10_000
        self.items |= each.items
        self.head = each.run.last_seq
        if each.floor:
            self.evict(LossCause.CAP, each.floor)

    @precondition(lambda self: self.in_flight)
    @rule()
    def fail(self) -> None:
        self.in_flight.clear()
        self.log.roll_back()
        assert self.log.assigned_floor == self.log.marks.live_floor

    # -- what takes records away -------------------------------------------------------------------------------------

    @rule(at=st.floats(0, 1), cause=st.sampled_from([LossCause.TTL, LossCause.CAP]))
    def evict_published(self, at: float, cause: LossCause) -> None:
        self.evict(cause, 1 + round(at * self.head))

    def evict(self, cause: LossCause, floor: int) -> None:
        gone = [seq for seq in self.items if seq < floor]
        assert self.log.evict({cause: floor}) == len(gone)
        for seq in gone:
            del self.items[seq]

    @rule(at=st.floats(0, 1))
    def delete_below(self, at: float) -> None:
        before = 1 + round(at * (self.head + 2))
        gone = [seq for seq in self.items if seq < before]
        assert self.log.delete(control.Delete(bound_head=self.head, before_seq=before)) == len(gone)
        for seq in gone:
            del self.items[seq]

    @rule(tag=st.sampled_from(["a", "b"]))
    def delete_by_tag(self, tag: str) -> None:
        gone = [seq for seq, (_, own) in self.items.items() if own == tag.encode()]
        request = control.Delete(bound_head=self.head, match=["tag", "Eq", tag])
        assert self.log.delete(request) == len(gone)
        assert self.log.delete(request) == 0
        for seq in gone:
            del self.items[seq]

    @rule(by=st.integers(1, 300))
    def lose_a_range(self, by: int) -> None:
        if not self.in_flight:
            assert self.log.evict(loss=[(self.head + 1, self.head + by, "crash")]) == 0
            self.head += by

    @precondition(lambda self: not self.in_flight)
    @rule()
    def change_class(self) -> None:
        self.ephemeral = not self.ephemeral
        self.log.set_ephemeral(self.ephemeral)
        self.durable_head = self.head

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def the_published_view_is_exact(self) -> None:
        assert (self.log.head, self.log.count) == (self.head, len(self.items))
        assert self.log.bytes == sum(size for size, _ in self.items.values())
        assert self.log.earliest_seq == min(self.items, default=self.head + 1)

    @invariant()
    def the_assigned_view_is_what_it_will_be_if_all_goes_well(self) -> None:
        items = dict(self.items)
        floor = self.log.marks.live_floor
        for each in self.in_flight:
            items |= each.items
            floor = max(floor, each.floor)
        kept = {seq: size for seq, (size, _) in items.items() if seq >= floor}
        assert self.log.assigned_head == (self.in_flight[-1].run.last_seq if self.in_flight else self.head)
        assert (self.log.assigned_count, self.log.assigned_bytes) == (len(kept), sum(kept.values()))
        assert self.usage.bytes == self.log.assigned_bytes
        memory = sum(size for seq, size in kept.items() if self.ephemeral and seq > self.durable_head)
        assert self.usage.ephemeral_bytes == self.log.memory_bytes == memory


TestLogModel = LogModel.TestCase
