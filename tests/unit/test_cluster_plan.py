"""What operators want of a cluster, as objects in its bucket."""

from __future__ import annotations

import random
from functools import partial

import msgspec
import pytest

from broker.cluster import Plan, newest, order
from broker.cluster.plan import key
from storage.bucket import Unanswered
from tests.support.memory_bucket import MemoryBucket


def test_orders_are_numbered_and_the_newest_is_found_from_any_older_one() -> None:
    bucket, plans = MemoryBucket(), [Plan()]
    assert newest(bucket, Plan()) == Plan()
    for cell in range(40):
        plans.append(order(bucket, plans[-1], lambda plan, cell=cell: plan.moved(cell, "b")))
    assert [plan.number for plan in plans] == [*range(41)]
    assert plans[-1].cells == dict.fromkeys(range(40), "b")
    for known in plans:
        assert newest(bucket, known) == plans[-1]


def test_orders_at_the_same_time_are_all_in_force() -> None:
    bucket = MemoryBucket()

    def late(plan: Plan) -> Plan:
        if plan.number == 0:
            order(bucket, Plan(), lambda plan: plan.moved(1, "b"))  # another gateway is faster
        return plan.draining("a", drain=True)

    assert order(bucket, Plan(), late) == Plan(number=2, cells={1: "b"}, drained=("a",))


def test_an_order_that_changes_nothing_makes_no_object() -> None:
    bucket = MemoryBucket()
    plan = order(bucket, Plan(), lambda plan: plan.draining("a", drain=True))
    assert order(bucket, Plan(), lambda plan: plan.draining("a", drain=True)) == plan
    assert [*bucket.objects] == [key(1)]
    assert order(bucket, plan, lambda plan: plan.draining("a", drain=False)) == Plan(number=2)


def test_an_order_without_an_answer_may_be_given_again() -> None:
    class Silent(MemoryBucket):
        def create(self, key: str, data: bytes) -> bool:
            super().create(key, data)
            raise Unanswered

    bucket = Silent()
    with pytest.raises(Unanswered):
        order(bucket, Plan(), lambda plan: plan.moved(0, "b"))
    assert order(bucket, Plan(), lambda plan: plan.moved(0, "b")) == Plan(number=1, cells={0: "b"})


def test_a_plan_that_cannot_be_read_wishes_nothing_and_does_not_stop_the_next_one() -> None:
    bucket = MemoryBucket()
    bucket.objects[key(1)] = b"{"
    assert newest(bucket, Plan()) == Plan(number=1)
    assert order(bucket, Plan(), lambda plan: plan.moved(0, "b")).number == 2


def test_random_orders_are_in_force_as_given() -> None:
    rng, bucket, plan = random.Random(5), MemoryBucket(), Plan()
    cells: dict[int, str] = {}
    drained: set[str] = set()
    for _ in range(300):
        cell, node = rng.randrange(4), rng.choice("abc")
        match rng.randrange(4):
            case 0:
                cells[cell] = node
                plan = order(bucket, plan, partial(Plan.moved, cell=cell, node=node))
            case 1:
                cells.pop(cell, None)
                plan = order(bucket, plan, partial(Plan.moved, cell=cell, node=None))
            case 2:
                drained.add(node)
                plan = order(bucket, plan, partial(Plan.draining, node=node, drain=True))
            case _:
                drained.discard(node)
                plan = order(bucket, plan, partial(Plan.draining, node=node, drain=False))
        assert (plan.cells, plan.drained) == (cells, tuple(sorted(drained)))
    assert msgspec.json.decode(bucket.objects[key(plan.number)], type=Plan) == plan
