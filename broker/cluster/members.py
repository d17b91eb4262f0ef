"""The members of a cluster: what each node says of itself in the bucket, and who takes which cell. Pure.

Each node writes its own object `members/<node>` every second, and reads those of the others. They are hints where to
ask, and keep two nodes from trying for the same cell. The safety of writes needs none of them: a process owns a cell
when the log of the cell says so (docs/reference/bucket.md), whatever the members believe.

Source: docs/cluster.md#nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec
import xxhash

from broker.cluster.owners import Address, ClusterMap, NodeEntry, NodeState, Owner, Takeover
from broker.cluster.plan import Plan
from broker.cluster.standing import WAITING, Standing
from storage.bucket import keys

#: Above these names, one object for each node.
PREFIX: Final = keys.MEMBERS
#: A member whose object has not changed for this time is not there.
SILENT_S: Final = 5.0
#: A node takes so many cells at a time.
AT_ONCE: Final = 2
#: The most spare processes of a node.
MAX_SPARES: Final = 4
#: The cells are spread evenly again when the members have been the same for this time.
STEADY_S: Final = 10.0


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that a node has a process for."""

    #: Drawn for the process. Its seals have it.
    nonce: str
    #: Of the cell, while the process owns it; 0 before.
    generation: int = 0
    ready: bool = False
    #: What the process does until it is ready. None: it has not said anything yet.
    standing: Standing | None = None
    http: Address | None = None
    kafka: Address | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an object."""

    node: str
    #: Drawn when the node started.
    nonce: str
    count: int = 0
    cluster: Address
    http: Address | None = None
    cells: dict[int, Held] = {}
    #: It gives its cells away, and takes none.
    draining: bool = False
    #: Cells that it gives to a node, which starts a process for each.
    offers: dict[int, str] = {}
    version: str = ""
    #: Formats of the bucket that it reads.
    formats: tuple[int, ...] = (1,)


#: Members that are there, by name; the node itself too.
Members = Mapping[str, Member]
_NO_PLAN: Final = Plan()


def key(node: str) -> str:
    return f"{PREFIX}{node}"


def rank(node: str, cell: int) -> int:
    """Breaks ties, in the same way in every node."""
    return xxhash.xxh3_64_intdigest(f"{node}/{cell}".encode())


def planned(members: Members, plan: Plan) -> dict[str, Member]:
    """The members, with those draining that shall be drained, whether they know it yet or not."""
    return {
        name: msgspec.structs.replace(each, draining=True) if name in plan.drained and not each.draining else each
        for name, each in members.items()
    }


def holder(cell: int, members: Members) -> Member | None:
    """The member that has the cell: one that serves it before one that waits for it."""
    found = [each for each in members.values() if cell in each.cells]
    return min(
        found,
        key=lambda each: (not each.cells[cell].ready, -each.cells[cell].generation, rank(each.node, cell)),
        default=None,
    )


def to_take(me: str, cells: int, members: Members, suspects: Collection[str] = (), plan: Plan = _NO_PLAN) -> list[int]:
    """The cells that this node starts processes for now: free ones that fall to it, and those that it is offered. A
    free cell goes to its node of the plan, or to the node with the fewest cells.

    `suspects`: members that may have ended. Their cells count as free, so that processes get ready for them meanwhile.
    """
    mine = members[me]
    suspected = {cell for name in suspects if name in members for cell in members[name].cells}
    members = without(suspects, members)
    if mine.draining:
        return []
    offered = {
        cell
        for each in members.values()
        for cell, node in each.offers.items()
        if node == me and each.node != me and cell not in mine.cells
    }
    taken = _free_for(me, cells, members, plan)
    starting = sum(not each.ready and not _waits(each) and cell not in suspected for cell, each in mine.cells.items())
    return [*sorted(offered), *taken[: max(0, AT_ONCE - starting)]]


def _free_for(me: str, cells: int, members: Members, plan: Plan) -> list[int]:
    """The free cells that fall to this node, which takes cells."""
    loads = {name: len(each.cells) for name, each in members.items() if not each.draining}
    found: list[int] = []
    for cell in range(cells):
        if any(cell in each.cells for each in members.values()):
            continue
        wanted = plan.cells.get(cell, "")
        node = wanted if wanted in loads else min(loads, key=lambda name: (loads[name], rank(name, cell)))
        loads[node] += 1
        if node == me:
            found.append(cell)
    return found


def spares_for(me: str, cells: int, members: Members, plan: Plan = _NO_PLAN) -> int:
    """How many spare processes this node has: for the cells that it would take if any one of the others were lost."""
    if members[me].draining:
        return 0
    others = (without([name], members) for name in members if name != me)
    return min(MAX_SPARES, max((len(_free_for(me, cells, left, plan)) for left in others), default=0))


def _waits(held: Held) -> bool:
    """Whether the process has nothing to do but to see that the owner has ended."""
    return held.standing is not None and held.standing.state == WAITING


def without(suspects: Collection[str], members: Members) -> Members:
    """The members that are there beyond doubt."""
    return {name: each for name, each in members.items() if name not in suspects}


def to_leave(me: str, members: Members, suspects: Collection[str] = ()) -> list[int]:
    """The cells whose processes this node ends, since another one has them. One that owns its cell ends by itself."""
    members = without(suspects, members)
    return [
        cell
        for cell, held in members[me].cells.items()
        if not held.ready
        and (first := holder(cell, members)) is not None
        and first.node != me
        and first.offers.get(cell) != me
    ]


def successor(cell: int, me: str, members: Members, plan: Plan = _NO_PLAN) -> str | None:
    """The node that a draining node gives the cell to: its node of the plan, or the one with the fewest cells."""
    promised = [node for each in members.values() for node in each.offers.values()]
    loads = {
        name: len(each.cells) + promised.count(name)
        for name, each in members.items()
        if name != me and not each.draining
    }
    if (wanted := plan.cells.get(cell, "")) in loads:
        return wanted
    return min(loads, key=lambda name: (loads[name], rank(name, cell)), default=None)


def to_move(me: str, members: Members, plan: Plan) -> tuple[int, str] | None:
    """A cell that this node gives to its node of the plan. One at a time at each node."""
    mine = members[me]
    if mine.offers:
        return None
    for cell, held in sorted(mine.cells.items()):
        to = members.get(plan.cells.get(cell, me))
        if held.ready and to is not None and to.node != me and not to.draining:
            return cell, to.node
    return None


def to_spread(me: str, cells: int, members: Members, plan: Plan = _NO_PLAN) -> tuple[int, str] | None:
    """A cell that this node gives to another one, because it has at least two more. One at a time in the cluster. A
    cell whose node of the plan is there is left to the plan."""
    if any(each.offers or (each.draining and each.cells) for each in members.values()):
        return None
    if sum(held.ready for each in members.values() for held in each.cells.values()) != cells:
        return None
    takers = {name: each for name, each in members.items() if not each.draining}
    loads = {name: len(each.cells) for name, each in takers.items()}
    free = {
        name: [cell for cell in each.cells if plan.cells.get(cell, "") not in takers] for name, each in takers.items()
    }
    most = max((name for name in takers if free[name]), key=lambda name: (loads[name], name), default=None)
    least = min(takers, key=lambda name: (loads[name], name), default=None)
    if most != me or least is None or loads[me] - loads[least] < 2:
        return None
    return min(free[me]), least


def cluster_map(
    me: str,
    cells: int,
    members: Members,
    silent: Mapping[str, Member],
    seen_at_ms: Callable[[str], int],
    plan: Plan = _NO_PLAN,
) -> ClusterMap:
    """What the other processes of the node are told. `seen_at_ms`: when the sign of life of a node changed last, in
    milliseconds since 1970."""

    def owner(cell: int) -> Owner | None:
        found = holder(cell, members)
        if found is None or not found.cells[cell].ready:
            return None
        held = found.cells[cell]
        return Owner(
            node=found.node, generation=held.generation, cluster=found.cluster, http=held.http, kafka=held.kafka
        )

    def entry(member: Member, state: NodeState) -> NodeEntry:
        return NodeEntry(
            node=member.node,
            state=state,
            cluster=member.cluster,
            http=member.http,
            seen_at_ms=seen_at_ms(member.node),
            version=member.version,
            formats=member.formats,
        )

    def takeover(cell: int) -> Takeover | None:
        """By the process that is closest to owning the cell."""
        found = [each for each in members.values() if cell in each.cells and not each.cells[cell].ready]
        if not found:
            return None
        first = min(found, key=lambda each: (*_order(each.cells[cell].standing), rank(each.node, cell)))
        standing = first.cells[cell].standing
        return None if standing is None else Takeover(node=first.node, standing=standing)

    def state(member: Member) -> NodeState:
        if not member.draining:
            return NodeState.ALIVE
        return NodeState.DRAINING if member.cells or member.node not in plan.drained else NodeState.DRAINED

    nodes = [
        *(entry(each, state(each)) for each in members.values()),
        *(entry(each, NodeState.SILENT) for each in silent.values()),
    ]
    return ClusterMap(
        me=me,
        cells=tuple(owner(cell) for cell in range(cells)),
        takeovers=tuple(takeover(cell) for cell in range(cells)),
        nodes=tuple(sorted(nodes, key=lambda each: each.node)),
        plan=plan,
    )


def _order(standing: Standing | None) -> tuple[bool, bool, int]:
    """The process that has got furthest comes first."""
    return standing is None, standing is None or standing.state == WAITING, 0 if standing is None else standing.since_ms
