"""Routers, which copy the records of one topic to another.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from schemas.fields import AnswerModel, ChangeModel, ConfigModel, Flag, NameOfTopic, TagPredicate
from schemas.performance import Performance
from schemas.records import EXAMPLE_PERFORMANCE

EXAMPLE_DEFINITION: dict[str, Any] = {
    "source": "orders",
    "dest": "audit",
    "preserve_node": True,
    "preserve_tag": True,
    "create_dest": True,
    "filter": ["tag", "Glob", "order.*"],
    "allow_cycle": False,
    "guarantee": "at_least_once",
    "from": "head",
}


def _example(value: dict[str, Any], **settings: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]}, **settings)


class _Copying(ConfigModel):
    preserve_node: Flag = Field(True, description="Copies keep their node.")
    preserve_tag: Flag = Field(True, description="Copies keep their tag.")
    create_dest: Flag = True
    filter: TagPredicate = None
    allow_cycle: Flag = Field(False, description="Allow a cycle of routers: copying stops after 7 hops.")
    guarantee: Literal["at_least_once", "exactly_once"] = Field(
        "at_least_once", description="Both values mean the same: no copy is missing and none is repeated."
    )
    start: Literal["head", "earliest"] = Field(
        "head",
        alias="from",
        description="Where a new router begins: after the newest record (head), or at the oldest one (earliest).",
    )


class RouterRequest(_Copying):
    """Source, destination, and the records to copy."""

    source: NameOfTopic = Field(description="Created if it does not exist.")
    dest: NameOfTopic = Field(description="Created if it does not exist, unless create_dest is false.")

    model_config = _example(EXAMPLE_DEFINITION)


class RouterChange(_Copying, ChangeModel):
    """Changes of a router. Omitted fields stay."""

    nullable: ClassVar[frozenset[str]] = frozenset({"filter"})

    source: NameOfTopic | None = Field(None, description="It cannot be changed.")
    dest: NameOfTopic | None = Field(None, description="It cannot be changed.")

    model_config = _example({"filter": ["tag", "Glob", "order.*"]})


class RouterDefinition(AnswerModel):
    """The definition of a router."""

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: list[str] | None = Field(description="null: all records are copied.")
    allow_cycle: bool
    guarantee: Literal["at_least_once", "exactly_once"]
    start: Literal["head", "earliest"] = Field(alias="from")


class RouterPutAnswer(RouterDefinition):
    created: bool
    performance: Performance

    model_config = _example(
        {"router": "audit", "created": True, **EXAMPLE_DEFINITION, "performance": EXAMPLE_PERFORMANCE}, extra="forbid"
    )


class RouterEntry(RouterDefinition):
    """The state of a router."""

    cursor_seq: int = Field(description="Records of the source up to this seq are copied, or excluded by the filter.")
    lag: int = Field(description="Seqs of the source after the cursor.")
    forwarded_total: int = Field(description="Copies that were made, in total.")
    blocked: str | None = Field(None, description="The error that stops the router; omitted if there is none.")


class RouterAnswer(RouterEntry):
    performance: Performance

    model_config = _example(
        {
            "router": "audit",
            **EXAMPLE_DEFINITION,
            "cursor_seq": 40,
            "lag": 0,
            "forwarded_total": 31,
            "performance": EXAMPLE_PERFORMANCE,
        },
        extra="forbid",
    )


class RouterListAnswer(AnswerModel):
    routers: list[RouterEntry]
    next_cursor: str | None = Field(None, description="Omitted on the last page.")
    performance: Performance

    model_config = _example(
        {
            "routers": [
                {"router": "audit", **EXAMPLE_DEFINITION, "cursor_seq": 40, "lag": 0, "forwarded_total": 31},
            ],
            "performance": EXAMPLE_PERFORMANCE,
        },
        extra="forbid",
    )


class RouterDeleteAnswer(AnswerModel):
    router: str
    deleted: bool = Field(description="false: it did not exist.")
    performance: Performance

    model_config = _example(
        {"router": "audit", "deleted": True, "performance": EXAMPLE_PERFORMANCE},
        extra="forbid",
    )
