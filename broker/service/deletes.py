"""Deleting records.

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
    """Delete the records before `before_seq` that also match `match`. At least one of them is required.

    On return the deletion is as durable as the topic's class defines.
    """
    predicate = tag_match(match, "match")
    if before_seq is None and predicate is None:
        raise InvalidRequest("before_seq or match is required.", field="before_seq")
    await engine.let_expire((topic,))  # so that expired records are not counted
    return await engine.delete_records(topic, before_seq, predicate)
