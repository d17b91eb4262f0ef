"""Producers against a model that keeps every batch: the same answers, whatever fails or restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidProducerEpoch, OutOfOrderSequence
from storage.records.values import ProducerBatch
from storage.state.producer_table import ProducerTable

WRAP = 1 << 31
IDLE = 10**9


@dataclass
class AcceptedBatch:
    """A batch that the model accepted, in the order of the log."""

    batch: ProducerBatch
    count: int
    first_seq: int
    published: bool = False


def expected(taken: Sequence[AcceptedBatch], batch: ProducerBatch, count: int) -> int | str | None:
    """The expected answer: an old first seq, an error, or None for a batch that is accepted."""
    mine = [each for each in taken if each.batch.producer_id == batch.producer_id]
    if not mine:
        return None
    epoch = mine[-1].batch.epoch
    if batch.epoch != epoch:
        return "fenced" if batch.epoch < epoch else None if batch.base_sequence == 0 else "gap"
    recent: list[AcceptedBatch] = []
    for each in reversed(mine):
        following = recent[-1].batch.base_sequence if recent else None
        ends = (each.batch.base_sequence + each.count) % WRAP
        if each.batch.epoch != epoch or following not in (None, ends) or len(recent) == 5:
            break
        recent.append(each)
    for each in recent:
        if (each.batch.base_sequence, each.count) == (batch.base_sequence, count):
            return each.first_seq
    newest = recent[0]
    return None if batch.base_sequence == (newest.batch.base_sequence + newest.count) % WRAP else "gap"


def answer(table: ProducerTable, batch: ProducerBatch, count: int) -> int | str | None:
    try:
        sent = table.known(batch, count, 0, IDLE)
    except InvalidProducerEpoch:
        return "fenced"
    except OutOfOrderSequence:
        return "gap"
    return None if sent is None else sent.first_seq


steps = st.one_of(
    st.tuples(
        st.just("send"),
        st.integers(1, 2),
        st.integers(0, 2),
        st.integers(0, 8).map(lambda base: (base - 4) % WRAP),
        st.integers(1, 3),
    ),
    st.tuples(st.just("next"), st.integers(1, 2), st.just(0), st.just(0), st.integers(1, 3)),
    st.tuples(st.sampled_from(["publish", "publish", "fail", "restart"]), *[st.just(0)] * 4),
)


@given(st.lists(steps, max_size=60))
def test_the_table_answers_as_the_model(run: list[tuple[str, int, int, int, int]]) -> None:
    table, taken, seq = ProducerTable(), list[AcceptedBatch](), 1
    for what, producer_id, epoch, base, count in run:
        waiting = [each for each in taken if not each.published]
        if what == "publish" and waiting:
            each = waiting[0]
            table.take(each.batch, each.count, each.first_seq, 0)
            each.published = True
        elif what == "fail":
            table.roll_back()
            taken = [each for each in taken if each.published]
            seq = taken[-1].first_seq + taken[-1].count if taken else 1
        elif what == "restart" and not waiting:
            table = ProducerTable.of(table.capture(seq))
        elif what in ("send", "next"):
            mine = [each for each in taken if each.batch.producer_id == producer_id]
            if what == "next" and mine:
                last = mine[-1]
                epoch, base = last.batch.epoch, (last.batch.base_sequence + last.count) % WRAP
            batch = ProducerBatch(producer_id, epoch, base)
            wanted = expected(taken, batch, count)
            assert answer(table, batch, count) == wanted
            if wanted is None:
                table.assign(batch, count, seq, 0)
                taken.append(AcceptedBatch(batch, count, seq))
                seq += count
