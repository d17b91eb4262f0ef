"""Who takes which cell, by what the members of a cluster say."""

from __future__ import annotations

import msgspec

from broker.cluster import (
    MAX_SPARES,
    WAITING,
    Address,
    Held,
    Member,
    NodeState,
    Plan,
    Standing,
    Takeover,
    cluster_map,
    planned,
    spares_for,
    successor,
    to_leave,
    to_move,
    to_spread,
    to_take,
)

HERE = Address("127.0.0.1", 4300)


def held(generation: int = 0) -> Held:
    """A cell that its process owns, or waits for without a generation."""
    return Held(nonce="00", generation=generation, ready=generation > 0)


def standing(state: str, since_ms: int = 0) -> Standing:
    return Standing(nonce="00", state=state, since_ms=since_ms)


def coming(state: str, since_ms: int = 0) -> Held:
    return Held(nonce="00", standing=standing(state, since_ms))


def members(**cells: dict[int, Held]) -> dict[str, Member]:
    return {name: Member(node=name, nonce=name, cluster=HERE, cells=of) for name, of in cells.items()}


def changed(found: dict[str, Member], name: str, **fields: object) -> dict[str, Member]:
    return {**found, name: msgspec.structs.replace(found[name], **fields)}


def test_every_free_cell_falls_to_one_node_and_none_gets_more_than_its_share() -> None:
    found = members(a={}, b={}, c={})
    taken = {name: to_take(name, 6, found) for name in found}
    assert sorted(cell for cells in taken.values() for cell in cells) == list(range(6))
    assert {len(cells) for cells in taken.values()} == {2}


def test_a_node_has_spare_processes_for_the_cells_of_any_other_one() -> None:
    found = members(a={0: held(1), 1: held(1)}, b={2: held(1), 3: held(1), 4: held(1)}, c={5: held(1)})
    assert spares_for("a", 6, found) == 1, "b is lost: c has fewer cells, and takes two"
    assert spares_for("b", 6, found) == 0
    assert spares_for("c", 6, found) == 2


def test_the_number_of_spare_processes_has_a_limit() -> None:
    many = members(a={}, b={cell: held(1) for cell in range(20)})
    assert spares_for("a", 20, many) == MAX_SPARES


def test_a_node_that_takes_no_cells_has_no_spare_processes() -> None:
    found = members(a={0: held(1)}, b={1: held(1)})
    assert spares_for("a", 2, members(a={0: held(1), 1: held(1)})) == 0, "it is alone"
    assert spares_for("a", 2, changed(found, "a", draining=True)) == 0


def test_a_node_takes_two_cells_at_a_time() -> None:
    assert len(to_take("a", 6, members(a={}))) == 2
    assert to_take("a", 6, members(a={0: held(), 1: held()})) == []
    assert len(to_take("a", 6, members(a={0: held(1), 1: held()}))) == 1


def test_a_process_that_only_waits_does_not_count_among_those_that_start() -> None:
    assert len(to_take("a", 6, members(a={0: coming(WAITING), 1: coming(WAITING)}))) == 2
    assert len(to_take("a", 6, members(a={0: coming(WAITING), 1: coming("taking")}))) == 1


def test_the_others_get_ready_for_the_cells_of_a_suspect_and_stop_when_it_is_back() -> None:
    found = members(a={0: held(3), 1: held(2)}, b={2: held(1)}, c={3: held(1)})
    assert [to_take(name, 4, found) for name in "bc"] == [[], []]
    taken = [to_take(name, 4, found, {"a"}) for name in "bc"]
    assert sorted([*taken[0], *taken[1]]) == [0, 1]
    assert [len(each) for each in taken] == [1, 1]
    [cell] = taken[0]
    ready = changed(found, "b", cells={2: held(1), cell: coming(WAITING)})
    assert to_take("b", 4, ready, {"a"}) == []
    assert to_leave("b", ready, {"a"}) == []
    assert to_leave("b", ready) == [cell]


def test_the_starts_for_a_suspect_do_not_wait_for_each_other() -> None:
    found = members(a={cell: held(1) for cell in range(5)}, b={})
    taken = to_take("b", 5, found, {"a"})
    assert len(taken) == 2
    assert len(to_take("b", 5, changed(found, "b", cells=dict.fromkeys(taken, held())), {"a"})) == 2


def test_of_two_that_got_ready_for_a_suspect_one_goes_on() -> None:
    found = members(a={0: held(3)}, b={0: coming(WAITING)}, c={0: coming(WAITING)})
    assert sorted([*to_leave("b", found, {"a"}), *to_leave("c", found, {"a"})]) == [0]


def test_a_draining_node_takes_nothing_and_gets_nothing() -> None:
    found = changed(members(a={}, b={}), "a", draining=True)
    assert (to_take("a", 2, found), to_take("b", 2, found)) == ([], [0, 1])
    assert successor(0, "b", found) is None


def test_a_cell_that_is_offered_is_taken_while_its_owner_has_it() -> None:
    found = changed(members(a={0: held(3)}, b={}), "a", offers={0: "b"})
    assert to_take("b", 1, found) == [0]
    waiting = changed(found, "b", cells={0: held()})
    assert to_leave("b", waiting) == []
    assert to_leave("b", changed(waiting, "a", offers={})) == [0], "the offer was withdrawn"


def test_of_two_that_wait_for_a_cell_one_goes_on() -> None:
    found = members(a={0: held()}, b={0: held()})
    assert sorted([*to_leave("a", found), *to_leave("b", found)]) == [0]
    served = members(a={0: held(4)}, b={0: held()})
    assert (to_leave("a", served), to_leave("b", served)) == ([], [0])


def test_cells_are_given_where_fewest_are_or_were_promised() -> None:
    found = changed(members(a={0: held(1), 1: held(1)}, b={2: held(1)}, c={}), "a", offers={0: "c"}, draining=True)
    assert successor(1, "a", found) in ("b", "c")
    assert successor(1, "a", changed(found, "a", offers={0: "c", 5: "c"})) == "b"


def test_cells_are_spread_one_at_a_time_and_not_for_a_difference_of_one() -> None:
    found = members(a={0: held(1), 1: held(1), 2: held(1)}, b={})
    assert to_spread("a", 3, found) == (0, "b")
    assert to_spread("b", 3, found) is None
    assert to_spread("a", 3, changed(found, "a", offers={0: "b"})) is None
    assert to_spread("a", 4, found) is None, "a cell has no owner"
    assert to_spread("a", 3, members(a={0: held(1), 1: held(1)}, b={2: held(1)})) is None


def test_the_map_has_owners_that_serve_and_the_state_of_each_node() -> None:
    found = changed(members(a={0: held(2), 1: held()}, b={0: held(5)}), "b", draining=True)
    known = cluster_map("a", 2, found, members(c={1: held(9)}), {"a": 1000, "b": 2000, "c": 3000}.__getitem__)
    first = known.owner(0)
    assert first is not None
    assert (first.node, first.generation, known.owner(1)) == ("b", 5, None)
    states = {each.node: each.state for each in known.nodes}
    assert states == {"a": NodeState.ALIVE, "b": NodeState.DRAINING, "c": NodeState.SILENT}
    assert [each.seen_at_ms for each in known.nodes] == [1000, 2000, 3000]


def test_the_map_shows_the_process_that_is_closest_to_owning_a_cell() -> None:
    found = members(
        a={0: held(2), 1: held()}, b={0: coming(WAITING), 1: coming(WAITING, 5)}, c={1: coming("taking", 9)}
    )
    known = cluster_map("a", 3, found, {}, lambda _: 0)
    assert known.takeover(0) == Takeover(node="b", standing=standing(WAITING))
    assert known.takeover(1) == Takeover(node="c", standing=standing("taking", 9))
    assert known.takeover(2) is None
    assert cluster_map("a", 2, members(a={1: held()}), {}, lambda _: 0).takeover(1) is None, "it has said nothing yet"


def test_a_drained_node_takes_nothing_and_gets_nothing_also_before_it_knows() -> None:
    plan = Plan(drained=("a",))
    found = planned(members(a={}, b={2: held(1), 3: held(1), 4: held(1)}), plan)
    assert (to_take("a", 2, found, plan=plan), to_take("b", 2, found, plan=plan)) == ([], [0, 1])
    assert successor(2, "b", found, plan) is None
    assert to_spread("b", 3, found, plan) is None


def test_a_cell_of_the_plan_goes_to_its_node_while_that_is_there() -> None:
    plan = Plan(cells={1: "b"})
    found = members(a={0: held(1), 1: held(1)}, b={}, c={})
    assert to_move("a", found, plan) == (1, "b")
    assert to_move("a", changed(found, "a", offers={0: "c"}), plan) is None, "one at a time"
    assert to_move("a", members(a={1: held()}, b={}), plan) is None, "it does not own it yet"
    assert to_move("a", changed(found, "b", draining=True), plan) is None
    assert to_move("a", members(a={1: held(1)}, c={}), plan) is None
    assert to_move("b", members(a={}, b={1: held(1)}), plan) is None


def test_a_free_cell_of_the_plan_falls_to_its_node_however_many_that_has() -> None:
    plan = Plan(cells={3: "b"})
    found = members(a={}, b={0: held(1), 1: held(1), 2: held(1)})
    assert (to_take("a", 4, found, plan=plan), to_take("b", 4, found, plan=plan)) == ([], [3])
    assert (to_take("a", 4, members(a={}, c={0: held(), 1: held(), 2: held()}), plan=plan)) == [3]
    assert successor(3, "a", found, plan) == "b"
    assert successor(0, "b", found, plan) == "a"


def test_the_balance_leaves_cells_of_the_plan_where_they_are() -> None:
    plan = Plan(cells={0: "a", 1: "a"})
    found = members(a={0: held(1), 1: held(1), 2: held(1)}, b={})
    assert to_spread("a", 3, found, plan) == (2, "b")
    assert to_spread("a", 2, members(a={0: held(1), 1: held(1)}, b={}), plan) is None
    # Its node of the plan is away: the cell counts as any other.
    assert to_spread("c", 2, members(b={}, c={0: held(1), 1: held(1)}), plan) == (0, "b")
    # The node with the most cells has to have all of them. The next one gives one.
    more = members(a={0: held(1), 1: held(1), 5: held(1)}, b={2: held(1), 3: held(1)}, c={})
    assert to_spread("b", 5, more, Plan(cells={0: "a", 1: "a", 5: "a"})) == (2, "c")


def test_the_balance_goes_on_beside_a_drained_node() -> None:
    plan = Plan(drained=("c",))
    found = planned(members(a={0: held(1), 1: held(1)}, b={}, c={}), plan)
    assert to_spread("a", 2, found, plan) == (0, "b")
    giving = planned(members(a={0: held(1), 1: held(1)}, b={}, c={2: held(1)}), plan)
    assert to_spread("a", 3, giving, plan) is None, "first the node has to be empty"


def test_the_map_shows_the_plan_and_which_node_is_drained() -> None:
    plan = Plan(number=4, cells={0: "b"}, drained=("a", "c"))
    found = planned(members(a={}, b={0: held(1)}, c={1: held(1)}), plan)
    shown = cluster_map("b", 2, found, {}, lambda _: 0, plan)
    assert [each.state for each in shown.nodes] == [NodeState.DRAINED, NodeState.ALIVE, NodeState.DRAINING]
    assert shown.plan == plan
