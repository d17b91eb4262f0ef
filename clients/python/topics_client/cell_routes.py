"""Which cell of a set a client asks directly, and when it asks the gateway instead. A state machine without I/O.

    a call → gateway, whose answer names the cell (Topics-Cell)
    a later call of that topic → where are the cells? (GET /v0/cluster, seldom) → is it there? (GET /v0/health of the
    cell, without the key) → the cell

If the cell could not be reached, or does not have the topic, the call is sent to the gateway at once, because nothing
was done. Any other failure is a failure of the call, and its next attempt goes to the gateway.

The key is sent only to addresses that the gateway has named, over the same scheme. If the gateway is on this machine
and uses plain text, the address must be on this machine too. Before the key is sent, the cell must say that it belongs
to that set.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec

from topics_client import address
from topics_client.values import Cluster, Health
from topics_client.wire import NoReply, Reply, Request

#: The most topics, or partitions of topics, whose cells are remembered. The one that was not used for the longest time
#: is dropped first.
MAX_PARTITIONS = 10_000
#: The addresses of the cells are requested again after this time.
REFRESH_S = 60.0
#: A cell whose connection failed, or a topic that its cell did not have, is left to the gateway for this time.
AVOID_S = 10.0
#: The same for a cell that did not answer the health request: a firewall may be in between.
UNREACHABLE_S = 60.0
#: The timeout of requests that only find out addresses.
ASK_S = 1.0
#: A request whose deadline has passed fails at once, by the timeout of its connection.
_LEAST_S = 0.001
#: The header that names the cell of an answer.
CELL = "topics-cell"
_NOT_MINE = 421
_TOPICS = "/v0/topics/"

#: A topic, and the partition that the request names.
Partition: TypeAlias = "tuple[str, str]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A request and the address it goes to. `bare`: without the key."""

    base: str
    request: Request
    bare: bool = False


class CellRoutes:
    """The routes of one client, for any number of threads."""

    def __init__(self, base: str, now: Callable[[], float]) -> None:
        """`base`: the address of the client's broker or gateway. `now`: seconds of a clock that never goes back."""
        self._base = base
        self._now = now
        self._lock = threading.Lock()
        self._cells: OrderedDict[Partition, int] = OrderedDict()
        #: Until when the gateway is asked instead, by partition and by cell.
        self._avoided: OrderedDict[Partition | int, float] = OrderedDict()
        self._set_id = ""
        self._urls: dict[int, str] = {}
        #: The cells that have confirmed that they belong to this set.
        self._checked: set[int] = set()
        self._ask_at = 0.0

    def send(self, request: Request) -> Generator[Leg, Reply | NoReply, Reply | NoReply]:
        """Send one attempt of a request to the cell or to the gateway. Send back the outcome of each leg."""
        partition, began = partition_of(request.method, request.target), self._now()
        if partition is not None and self._cells:
            left, (cell, url) = request, self._known(partition, began)
            if url is None:
                cell = self._cell_of(partition)
                url = None if cell is None else (yield from self._url_of(cell, request))
                left = self._left_of(request, began)
            if cell is not None and url is not None:
                outcome = yield Leg(base=url, request=left)
                if not self._failed(cell, partition, outcome):
                    return outcome
        outcome = yield Leg(base=self._base, request=self._left_of(request, began))
        if partition is not None and isinstance(outcome, Reply):
            self._learn(partition, outcome)
        return outcome

    def _left_of(self, request: Request, began: float) -> Request:
        """The request, with the rest of its deadline."""
        if request.limit_s is None:
            return request
        return replace(request, limit_s=max(_LEAST_S, request.limit_s - (self._now() - began)))

    def _known(self, partition: Partition, now: float) -> tuple[int | None, str | None]:
        """The cell to ask and its address, if nothing has to be found out first: the way of almost every call."""
        with self._lock:
            cell = self._cells.get(partition)
            if cell is None or now >= self._ask_at or cell not in self._checked:
                return None, None
            if self._avoided and (self._is_avoided(partition) or self._is_avoided(cell)):
                return None, None
            self._cells.move_to_end(partition)
            return cell, self._urls.get(cell)

    def _cell_of(self, partition: Partition) -> int | None:
        """The cell to ask. None if the gateway must be asked."""
        with self._lock:
            cell = self._cells.get(partition)
            if cell is None or self._is_avoided(partition) or self._is_avoided(cell):
                return None
            self._cells.move_to_end(partition)
            return cell

    def _url_of(self, cell: int, request: Request) -> Generator[Leg, Reply | NoReply, str | None]:
        """The address of a cell that has confirmed its identity. Other threads use the gateway meanwhile."""
        with self._lock:
            asks, now = self._now() >= self._ask_at, self._now()
            if asks:
                self._ask_at = now + REFRESH_S
        if asks:
            outcome = yield Leg(base=self._base, request=_asking("/v0/cluster", request))
            self._take_addresses(outcome)
        with self._lock:
            url = self._urls.get(cell)
            if url is None or cell in self._checked:
                return url
            self._avoid(cell, UNREACHABLE_S)  # until it has answered
        outcome = yield Leg(base=url, request=_asking("/v0/health", request), bare=True)
        with self._lock:
            if not _is_of(outcome, self._set_id, cell) or self._urls.get(cell) != url:
                return None
            self._checked.add(cell)
            self._avoided.pop(cell, None)
        return url

    def _take_addresses(self, outcome: Reply | NoReply) -> None:
        """Store the addresses from the gateway. Without an answer the former ones stay."""
        if isinstance(outcome, NoReply) or outcome.status >= 500:
            return
        found = Cluster(set_id="", home_cells=0, cells=[])
        if outcome.status == 200:
            with suppress(msgspec.DecodeError):
                found = msgspec.json.decode(outcome.body, type=Cluster)
        urls = {each.cell: each.http for each in found.cells if each.http and is_as_safe(each.http, self._base)}
        with self._lock:
            if found.set_id != self._set_id:
                self._checked.clear()
            self._checked = {cell for cell in self._checked if urls.get(cell) == self._urls.get(cell)}
            self._set_id, self._urls = found.set_id, urls

    def _failed(self, cell: int, partition: Partition, outcome: Reply | NoReply) -> bool:
        """Whether the cell has done nothing, so that the gateway can be asked now. Notes what to avoid."""
        if isinstance(outcome, Reply) and outcome.status != _NOT_MINE:
            return False
        with self._lock:
            if isinstance(outcome, NoReply):
                self._avoid(cell)
                self._checked.discard(cell)
                self._ask_at = min(self._ask_at, self._now() + AVOID_S)  # it may have moved to another node
                return not outcome.sent
            self._avoid(partition)
            self._cells.pop(partition, None)
            return True

    def _learn(self, partition: Partition, reply: Reply) -> None:
        named = reply.headers.get(CELL)
        if named is None or not (named.isascii() and named.isdigit()):
            return
        with self._lock:
            self._cells[partition] = int(named)
            self._cells.move_to_end(partition)
            if len(self._cells) > MAX_PARTITIONS:
                self._cells.popitem(last=False)

    def _avoid(self, what: Partition | int, seconds: float = AVOID_S) -> None:
        self._avoided[what] = self._now() + seconds
        self._avoided.move_to_end(what)
        if len(self._avoided) > MAX_PARTITIONS:
            self._avoided.popitem(last=False)

    def _is_avoided(self, what: Partition | int) -> bool:
        until = self._avoided.get(what)
        if until is None:
            return False
        if self._now() < until:
            return True
        del self._avoided[what]
        return False


@lru_cache(maxsize=1024)
def partition_of(method: str, target: str) -> Partition | None:
    """The topic and partition of a request that the cell with the records answers. None for all others: a request that
    creates, changes, describes or deletes a topic concerns all cells with its partitions."""
    if not target.startswith(_TOPICS):
        return None
    path, _, query = target.partition("?")
    topic, slash, _ = path[len(_TOPICS) :].partition("/")
    if not slash and method != "POST":
        return None
    _, named, partition = f"&{query}".partition("&partition=")
    return topic, partition.partition("&")[0] if named else ""


def is_as_safe(url: str, base: str) -> bool:
    """Whether the address is valid for a broker, and a key that may be sent to `base` may be sent there too."""
    try:
        parts = urlsplit(url)
        plain = parts.hostname and parts.port and parts.username is None and not (parts.path or parts.query)
    except ValueError:
        return False
    if not plain or parts.scheme != address.parts_of(base).scheme:
        return False
    # Plain text to this machine may come through a tunnel. The network in between would see the key.
    return parts.scheme == "https" or not address.is_loopback(base) or address.is_loopback(url)


def _is_of(outcome: Reply | NoReply, set_id: str, cell: int) -> bool:
    """Whether this answer to a health request is from the cell. A set whose probes need keys answers 401: then only the
    header tells."""
    if isinstance(outcome, NoReply) or outcome.headers.get(CELL) != str(cell):
        return False
    if outcome.status != 200:
        return outcome.status == 401
    try:
        health = msgspec.json.decode(outcome.body, type=Health)
    except msgspec.DecodeError:
        return False
    return bool(set_id) and health.set_id == set_id


def _asking(target: str, request: Request) -> Request:
    return Request(method="GET", target=target, limit_s=request.at_most(ASK_S))
