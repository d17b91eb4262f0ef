"""Which node owns each cell of a cluster, as far as this node knows. The supervisor writes it to `owners.json` in the
folder of the sockets, and the other processes of the node read it.

It is only a hint where to ask: the log of a cell alone decides who may write. An entry that is wrong or old costs a
refused request and nothing else.

Source: docs/cells.md.
"""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import Final

import msgspec

from broker.cluster.plan import Plan
from broker.cluster.standing import Standing

_FILE: Final = "owners.json"
#: Longer than a tick of a file system's clock.
_TICK_NS: Final = 100_000_000


class Address(msgspec.Struct, frozen=True):
    """A TCP address. `host`: a name or an IP address, without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The node that owns a cell."""

    node: str
    #: The generation of the cell, which grows with each change of the owner.
    generation: int
    #: Where the node accepts connections from other nodes.
    cluster: Address
    #: Where clients reach the cell itself, by HTTP and by the Kafka protocol. None: it has no such port.
    http: Address | None = None
    kafka: Address | None = None


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """The process that will own a cell next."""

    node: str
    standing: Standing


class NodeState(enum.StrEnum):
    """`silent`: its sign of life has not changed for a while. `draining`: it gives away its cells and takes none.
    `drained`: it has none, and takes none until that is taken back."""

    ALIVE = "alive"
    DRAINING = "draining"
    DRAINED = "drained"
    SILENT = "silent"


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node that takes part in the cluster, or did until a moment ago."""

    node: str
    state: NodeState
    cluster: Address
    #: Where its gateway is reached by HTTP clients. None: unknown.
    http: Address | None = None
    #: When this node last saw its sign of life change: milliseconds since 1970, by the clock of this node.
    seen_at_ms: int = 0
    #: Its release.
    version: str = ""
    #: Formats of the bucket that it reads.
    formats: tuple[int, ...] = (1,)


class ClusterMap(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows about its cluster at one time."""

    #: The name of the node that wrote this.
    me: str
    #: The owner of each cell, by its number. None: no owner is known.
    cells: tuple[Owner | None, ...]
    #: The process that waits for each cell or takes it over. None, and absent at the end: none does.
    takeovers: tuple[Takeover | None, ...] = ()
    #: All nodes that are known, also this one, in the order of their names.
    nodes: tuple[NodeEntry, ...] = ()
    #: What operators wish.
    plan: Plan = Plan()

    def owner(self, cell: int) -> Owner | None:
        """The owner of a cell. None if none is known."""
        return self.cells[cell] if 0 <= cell < len(self.cells) else None

    def takeover(self, cell: int) -> Takeover | None:
        """The process that waits for a cell or takes it over."""
        return self.takeovers[cell] if 0 <= cell < len(self.takeovers) else None

    def is_local(self, cell: int) -> bool:
        """Whether this node owns the cell."""
        owner = self.owner(cell)
        return owner is not None and owner.node == self.me

    def is_elsewhere(self, cell: int) -> bool:
        """Whether another node owns the cell."""
        owner = self.owner(cell)
        return owner is not None and owner.node != self.me


_decode = msgspec.json.Decoder(ClusterMap).decode


def write_owners(folder: Path, known: ClusterMap) -> None:
    """Replace the file in the folder of the sockets: a reader sees the old content or the new one. There is one writer
    at a time. Raises OSError."""
    temporary = folder / f"{_FILE}.tmp"
    temporary.write_bytes(msgspec.json.encode(known))
    temporary.replace(folder / _FILE)


class OwnersFile:
    """Reads the file in a folder again whenever it was replaced."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self._seen: tuple[int, int, int] | None = None
        self._content = b""
        self._known: ClusterMap | None = None

    def read(self) -> ClusterMap | None:
        """What the file says now: the same object as long as the content is the same. While the file cannot be read:
        what it said last. None if it has never been there. One call costs a `stat`, and reads a small file if that
        was replaced."""
        try:
            found = self._path.stat()
            seen = found.st_ino, found.st_mtime_ns, found.st_size
            if seen != self._seen:
                content = self._path.read_bytes()
                if content != self._content:
                    self._known = _decode(content)
                    self._content = content
                # Two files written within one tick of the file system's clock may look alike to `stat`.
                self._seen = seen if time.time_ns() - found.st_mtime_ns > _TICK_NS else None
        except (OSError, msgspec.DecodeError):
            pass
        return self._known

    def is_elsewhere(self, cell: int) -> bool:
        """Whether another node owns the cell, as far as this one knows."""
        known = self.read()
        return known is not None and known.is_elsewhere(cell)
