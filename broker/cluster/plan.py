"""What operators wish of a cluster: cells that belong at certain nodes, and nodes that have no cells.

A plan is an object `plan/<number>` in the bucket. It is created once and never changed; the newest one counts. They are
numbered from 1 without gaps, so the newest is found by asking for names, not by a listing. Of two orders at the same
time, one creates the next number, and the other one is repeated on top of it. Nodes ask for the next number every
second.

A plan is only a hint, like the members: nodes follow it by giving cells away as in any other move. It stays until
another one takes it back, also when nodes are restarted.

Source: docs/cluster.md#moving-cells-and-draining-nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from storage.bucket import keys

if TYPE_CHECKING:
    from storage.bucket import Bucket


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an object. 0: nobody has ordered anything yet."""

    number: int = 0
    #: The node that has each of these cells, as long as it is there and is not drained.
    cells: Mapping[int, str] = {}
    #: Nodes that give their cells away and take none.
    drained: tuple[str, ...] = ()

    def moved(self, cell: int, node: str | None) -> Plan:
        """With the cell at that node; None: at any."""
        others = {each: to for each, to in self.cells.items() if each != cell}
        return msgspec.structs.replace(self, cells=others if node is None else {**others, cell: node})

    def draining(self, node: str, *, drain: bool) -> Plan:
        """With the node drained, or not any more."""
        others = set(self.drained) - {node}
        return msgspec.structs.replace(self, drained=tuple(sorted({*others, node} if drain else others)))


_decode = msgspec.json.Decoder(Plan).decode


def key(number: int) -> str:
    return f"{keys.PLAN}{number:016x}"


def newest(bucket: Bucket, known: Plan) -> Plan:
    """The newest plan; `known` exists. Blocking. Raises Unanswered."""
    low, step = known, 1
    while (ahead := _get(bucket, low.number + step)) is not None:
        low, step = ahead, step * 2
    high = low.number + step
    while high - low.number > 1:
        between = _get(bucket, (low.number + high) // 2)
        if between is None:
            high = (low.number + high) // 2
        else:
            low = between
    return low


def order(bucket: Bucket, known: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """Change the newest plan, and return what came of it. Blocking. Raises what `change` raises; Unanswered: perhaps it
    is changed, or will be."""
    while True:
        known = newest(bucket, known)
        wanted = change(known)
        if wanted == known:
            return known
        wanted = msgspec.structs.replace(wanted, number=known.number + 1)
        if bucket.create(key(wanted.number), msgspec.json.encode(wanted)):
            return wanted


def _get(bucket: Bucket, number: int) -> Plan | None:
    data = bucket.get(key(number))
    if data is None:
        return None
    try:
        return msgspec.structs.replace(_decode(data), number=number)
    except msgspec.DecodeError:
        return Plan(number=number)  # nobody can follow it; the next order is on top of an empty plan
