"""Jobs kept together in grants and jobs kept alone behave the same in every sequence of operations."""

from __future__ import annotations

import pytest

from storage.format.control import Lease
from storage.state.queues.leases import LeaseBatch, LeaseTable, lease_entries, uniform_columns
from storage.state.queues.policy import Limits
from tests.unit.storage.queues.grant_pair import Holding, Pair, Side

HEAPS = ("_back", "_due", "_ends", "_low", "_firsts")
#: The most entries that a heap may have beyond those that jobs need.
SLACK = 1024


@pytest.mark.parametrize("seed", range(40))
def test_batched_leases_behave_as_single_leases(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(250):
        pair.step()
        pair.alike()
    assert pair.grants > 20, "or nothing was compared"


@pytest.mark.parametrize("seed", range(20))
def test_a_replay_gives_the_same_state_for_batched_and_single_leases_and_is_idempotent(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(150):
        pair.step()
    once = [Side(pair.limits, together) for together in (True, False)]
    twice = [Side(pair.limits, together) for together in (True, False)]
    seen_together = 0
    for frame in pair.journal:
        for side in once:
            frame(side)
        for side in twice:
            frame(side)
            frame(side)
        images = [side.image(len(pair.live)) for side in (*once, *twice)]
        assert images[0] == images[1]
        assert images[2] == images[3]
        seen_together += bool(once[0].table.batches)
    assert seen_together > 5
    live = {*pair.live}
    for side in (*once, *twice):
        side.table.prune(live.__contains__)  # as at the end of a recovery
    images = [side.image(len(live)) for side in (*once, *twice)]
    # Counts of moves may differ, and no job is held in a replay.
    assert images[0][0][:-1] == images[2][0][:-1]
    assert images[0][1:] == images[2][1:] == images[3][1:]


def leased_grant(key: str | None = None) -> tuple[LeaseTable, LeaseBatch]:
    """Jobs 1 to 3, leased until 500."""
    table = LeaseTable(Limits())
    grant = table.add_batch((1, 2, 3))
    table.lease_batch(grant, (11, 12, 13), 500, "n", key)
    return table, grant


def test_leases_expire_after_a_failed_ack_past_their_deadline() -> None:
    table, grant = leased_grant()
    grant.busy = True
    assert table.expired(501) == []
    assert table.next_change() is None
    table.put_back_batch(grant)
    assert table.next_change() == 501
    assert table.expired(500) == []
    assert [job.seq for job in table.expired(501)] == [1, 2, 3]


def test_a_batch_split_during_its_ack_is_put_back_job_by_job() -> None:
    table, grant = leased_grant()
    grant.busy = True
    table.deleted(2)
    assert table.expired(501) == []
    table.put_back_batch(grant)
    assert [(job.seq, job.gone) for job in table.expired(501)] == [(1, False), (2, True), (3, False)]


def test_jobs_claimed_again_belong_only_to_the_second_claim() -> None:
    table, grant = leased_grant("first")
    holder = grant.holder = Holding()
    table.apply(Lease(event="claimed", jobs=lease_entries((1, 2, 3), (21, 22, 23), 900), attempt_key="second"), "m")
    assert {id(table.batches[seq]) for seq in (1, 2, 3)} == {id(grant)}
    assert ([*table.attempts], holder.ended) == ([("m", "second")], [1, 2, 3])
    assert table.expired(501) == []
    assert table.held_batch((1, 2, 3), (11, 12, 13), "m", 500) is None
    assert table.held_batch((1, 2, 3), (21, 22, 23), "n", 500) is None
    assert table.held_batch((1, 2, 3), (21, 22, 23), "m", 900) is grant
    assert table.held_batch((1, 2, 3), (21, 22, 23), "m", 901) is None


def heaps(table: LeaseTable) -> dict[str, int]:
    return {name: len(getattr(table, name)) for name in HEAPS}


@pytest.mark.parametrize("way", ["whole", "in parts", "failing", "expiring", "frames"])
def test_the_heaps_stay_small_over_many_claims_and_acks(way: str) -> None:
    """A hundred thousand claims, of two jobs each, of which two hundred are leased at any time."""
    table, under_way = LeaseTable(Limits()), 100
    now, head = 1000, 10**9
    waiting: list[LeaseBatch] = []
    largest: dict[str, int] = dict.fromkeys(HEAPS, 0)

    def live_seqs(seq: int, count: int) -> range:
        return range(max(seq, 1), min(head, max(seq, 1) + count))

    for cycle in range(100_000):
        now += 1
        grant = table.take_batch(2, live_seqs)
        assert grant is not None
        tokens = (2 * cycle + 1, 2 * cycle + 2)
        if way == "frames":
            rows = [(seq, token, now + 500, 1, 0, 0) for seq, token in zip(grant.seqs, tokens, strict=True)]
            table.apply(Lease(event="claimed", jobs=rows), "n")
        else:
            table.lease_batch(grant, tokens, now + 500, "n", None)
        if way == "failing":
            grant.busy = True
            table.put_back_batch(grant)
        waiting.append(grant)
        if len(waiting) > under_way:
            done = waiting.pop(0)
            if way == "in parts":
                table.forget_deleted([done.seqs[0]])
                table.forget_deleted([done.seqs[1]])
            else:
                table.forget_deleted(done.seqs)
        if way == "expiring":
            assert table.expired(now) == []
            table.next_change()
        if not cycle % 250:
            largest = {name: max(largest[name], size) for name, size in heaps(table).items()}
    assert table.in_flight == 2 * under_way
    bound = 2 * table.in_flight + SLACK + 2 * 2 * 250
    assert max(largest.values()) <= bound, largest


def test_each_leased_job_needs_a_lease_id() -> None:
    with pytest.raises(ValueError, match="1 lease_ids for 2 jobs"):
        lease_entries((1, 2), (7,), 1000)
    assert (
        uniform_columns(lease_entries((1, 2), (7, 8), 1000))
        == uniform_columns([*lease_entries((1, 2), (7, 8), 1000)])
        == ((1, 2), (7, 8), 1000)
    )
