"""The memory budget: grants, waiting, and that every grant is returned."""

from __future__ import annotations

import random

import pytest

from broker.memory.budget import Budget, Hold, Waiter


def test_a_hold_beyond_the_bound_is_refused() -> None:
    budget = Budget(100)
    held = budget.try_hold("a", 60)
    assert held is not None
    assert budget.try_hold("b", 41) is None
    assert budget.held == 60
    held.resize(50)
    assert budget.try_hold("b", 41) is not None
    assert budget.held == 91


def test_a_hold_beyond_the_bound_of_its_owner_is_refused() -> None:
    budget = Budget(100, 40)
    assert budget.try_hold("a", 30) is not None
    assert budget.try_hold("a", 20) is None
    assert budget.try_hold("b", 20) is not None


def test_a_hold_larger_than_the_bound_is_granted_alone() -> None:
    budget = Budget(100, 40)
    held = budget.try_hold("a", 500)
    assert held is not None
    assert budget.is_over
    assert budget.try_hold("b", 1) is None
    held.release()
    assert budget.try_hold("b", 1) is not None


def test_a_budget_without_a_bound_grants_every_hold() -> None:
    budget = Budget(0)
    assert budget.try_hold("a", 1 << 40) is not None
    assert budget.try_hold("a", 1 << 40) is not None
    assert not budget.is_over


def test_a_hold_is_released_once() -> None:
    budget = Budget(100)
    held = budget.hold("a", 10)
    held.release()
    held.release()
    assert (budget.held, budget.owners) == (0, 0)


def test_waiters_are_served_in_order() -> None:
    budget = Budget(100)
    first = budget.hold("a", 100)
    served: list[str] = []
    budget.wait("b", 80, lambda hold: served.append("b"))
    budget.wait("c", 30, lambda hold: served.append("c"))
    first.resize(60)
    assert served == []  # c would fit, but b came first
    first.release()
    assert served == ["b"]
    assert budget.waiting == 1


def test_a_waiter_at_the_bound_of_its_owner_does_not_delay_other_owners() -> None:
    budget = Budget(100, 40)
    budget.hold("a", 40)
    served: list[str] = []
    budget.wait("a", 10, lambda hold: served.append("a"))
    budget.wait("b", 10, lambda hold: served.append("b"))
    assert served == ["b"]


def test_a_new_hold_does_not_overtake_waiters() -> None:
    budget = Budget(100)
    budget.hold("a", 60)
    budget.wait("b", 50, lambda hold: None)
    assert budget.try_hold("c", 10) is None


def test_a_cancelled_waiter_lets_later_waiters_proceed() -> None:
    budget = Budget(100)
    budget.hold("a", 60)
    served: list[str] = []
    waiter = budget.wait("b", 50, lambda hold: served.append("b"))
    budget.wait("c", 40, lambda hold: served.append("c"))
    budget.give_up(waiter)
    assert served == ["c"]
    budget.give_up(waiter)


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_is_always_the_sum_of_the_holds(seed: int) -> None:
    dice = random.Random(seed)
    budget = Budget(1000, 400)
    holds: list[Hold] = []
    waiters: list[Waiter] = []
    for _ in range(500):
        owner, size = dice.randrange(5), dice.randrange(1, 300)
        match dice.randrange(5):
            case 0:
                if (made := budget.try_hold(owner, size)) is not None:
                    assert budget.held <= 1000 or len([each for each in holds if each.size]) == 0
                    holds.append(made)
            case 1:
                waiters.append(budget.wait(owner, size, holds.append))
            case 2 if holds:
                dice.choice(holds).release()
            case 3 if holds:
                chosen = dice.choice(holds)
                chosen.resize(dice.randrange(chosen.size + 1))
            case 4 if waiters:
                budget.give_up(waiters.pop(dice.randrange(len(waiters))))
            case _:
                pass
        assert budget.held == sum(each.size for each in holds)
        assert budget.held <= 1000
        assert all(budget.held_by(owner) <= 400 for owner in range(5))
    for each in waiters:
        budget.give_up(each)
    for each in holds:
        each.release()
    assert (budget.held, budget.owners, budget.waiting) == (0, 0, 0)


def test_of_waiting_owners_with_a_hold_one_may_exceed_the_bound() -> None:
    budget = Budget(100, goes_over=True)
    came = [budget.hold(name, 30) for name in "abc"]
    served: list[Hold] = []
    for each in came:
        budget.wait(each.owner, 60, served.append)
    assert [each.owner for each in served] == ["a"]
    assert budget.is_over
    assert not budget.has_room("d", 1)
    came[0].release()
    assert [each.owner for each in served] == ["a"]
    served[0].release()
    assert [each.owner for each in served] == ["a", "b"]
