"""Options of reads.

Source: docs/reference/api.md#records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from storage.records import ReadResult

if TYPE_CHECKING:
    from storage import Engine

DEFAULT_LIMIT, MAX_LIMIT = 256, 1000
DEFAULT_BATCH_BYTES, MAX_BATCH_BYTES = 1 << 20, 8 << 20
MAX_WAIT_MS: Final = 30_000


def has_nothing(result: ReadResult) -> bool:
    """Whether a read should wait: it has examined all records, and the answer would be empty."""
    return (
        not result.records
        and result.tombstone is None
        and not result.corrupt_seqs
        and result.next_from_seq >= result.head_seq
    )


def clamped(asked: int, default: int, most: int) -> int:
    """The requested limit, clamped; 0 means the default."""
    return min(asked or default, most)


def several(nodes: str | list[str] | None) -> Iterable[str]:
    """The values of a field that may be one, several or none. An empty one is none."""
    if not nodes:
        return ()
    return (nodes,) if isinstance(nodes, str) else [node for node in nodes if node]


def excluded_nodes(engine: Engine, topic: str, nodes: Iterable[str]) -> frozenset[bytes]:
    """The nodes whose records are excluded; none if the topic's dedupe_node is off."""
    exclude = frozenset(node.encode() for node in nodes)
    if exclude and not engine.state(topic).config.dedupe_node:
        return frozenset()
    return exclude
