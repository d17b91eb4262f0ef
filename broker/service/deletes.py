"""Deleting records for good.

Source: docs/reference/api.md#records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.service.predicates import tag_match
from storage import InvalidRequest
from storage.records import DeletedRecords

if TYPE_CHECKING:
    from storage import Engine


async def delete_records(engine: Engine, topic: str, *, before_seq: int | None, match: Any) -> DeletedRecords:
    """Deletes what is below `before_seq` and fits `match`; one of them at least, both = both must hold.

    On return the deletion is as safe as the topic's durability class says.
    """
    predicate = tag_match(match, "match")
    if before_seq is None and predicate is None:
        raise InvalidRequest("before_seq or match is required.", field="before_seq")
    await engine.let_expire((topic,))  # what has expired is not deleted, and not counted
    return await engine.delete_records(topic, before_seq, predicate)
