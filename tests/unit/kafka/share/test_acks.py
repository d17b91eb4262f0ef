"""Acknowledgements by table: the type given for each offset, and the resulting action."""

from __future__ import annotations

from time import thread_time

import pytest

from broker.kafka.messages.share import AcknowledgementBatch
from broker.kafka.share.acks import AckType, InvalidBatches, plan

HELD = {seq: 1000 + seq for seq in (1, 2, 3, 5)}
G, A, L, R, N = AckType.GAP, AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.RENEW


def batch(first: int, last: int, *types: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


@pytest.mark.parametrize(
    ("batches", "version", "done", "unknown"),
    [
        ([], 1, {}, False),
        ([batch(0, 2, A)], 1, {A: [1, 2, 3]}, False),
        ([batch(0, 2, A, L, R)], 1, {A: [1], L: [2], R: [3]}, False),
        ([batch(0, 0, A), batch(4, 4, R)], 1, {A: [1], R: [5]}, False),
        ([batch(0, 4, A, A, A, G, A)], 1, {A: [1, 2, 3, 5]}, False),
        # A gap at the offset of a job: the client did not see the job.
        ([batch(0, 0, G)], 1, {L: [1]}, False),
        ([batch(3, 3, G)], 1, {}, False),
        ([batch(3, 3, A)], 1, {}, True),
        ([batch(0, 4, A)], 1, {A: [1, 2, 3, 5]}, True),
        ([batch(2, 4, A, A, A)], 1, {A: [3, 5]}, True),
        ([batch(0, 1 << 62, A)], 1, {A: [1, 2, 3, 5]}, True),
        ([batch(4, 1 << 62, G)], 1, {L: [5]}, False),
        ([batch(0, 1, N)], 2, {N: [1, 2]}, False),
    ],
)
def test_plan_groups_offsets_by_type(
    batches: list[AcknowledgementBatch], version: int, done: dict[AckType, list[int]], unknown: bool
) -> None:
    assert plan(batches, HELD, version) == (done, unknown)


@pytest.mark.parametrize(
    ("batches", "version"),
    [
        ([batch(-1, 0, A)], 1),
        ([batch(1, 0, A)], 1),
        ([batch(0, 2, A, A)], 1),
        ([batch(0, 2)], 1),
        ([batch(0, 0, 5)], 2),
        ([batch(0, 0, -1)], 2),
        ([batch(0, 0, N)], 1),
        ([batch(2, 3, A), batch(3, 4, A)], 1),
        ([batch(2, 3, A), batch(0, 1, A)], 1),
    ],
)
def test_invalid_acknowledgement_batches_are_refused(batches: list[AcknowledgementBatch], version: int) -> None:
    with pytest.raises(InvalidBatches):
        plan(batches, HELD, version)


def test_cost_of_a_range_depends_on_held_leases() -> None:
    began = thread_time()
    for _ in range(100):
        plan([batch(0, (1 << 63) - 2, A)], HELD, 1)
    assert thread_time() - began < 1
