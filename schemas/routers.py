"""Routers: what is appended to one topic is copied to another.

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
    allow_cycle: Flag = Field(False, description="Routers may run in a circle: copies stop after 7 hops.")
    guarantee: Literal["at_least_once", "exactly_once"] = Field(
        "at_least_once", description="Both are served alike: no copy is missing and none comes twice."
    )
    start: Literal["head", "earliest"] = Field(
        "head", alias="from", description="A new router begins with what comes from now on, or with what is there."
    )


class RouterRequest(_Copying):
    """Where from, where to, and which records."""

    source: NameOfTopic = Field(description="Made if missing.")
    dest: NameOfTopic = Field(description="Made if missing, unless create_dest is false.")

    model_config = _example(EXAMPLE_DEFINITION)


class RouterChange(_Copying, ChangeModel):
    """What a router is to do otherwise. Fields left out stay as they are."""

    nullable: ClassVar[frozenset[str]] = frozenset({"filter"})

    source: NameOfTopic | None = Field(None, description="Cannot be changed.")
    dest: NameOfTopic | None = Field(None, description="Cannot be changed.")

    model_config = _example({"filter": ["tag", "Glob", "order.*"]})


class RouterDefinition(AnswerModel):
    """A router as it was asked for."""

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    create_dest: bool
    filter: list[str] | None = Field(description="null: every record is copied.")
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
    """A router as it is now."""

    cursor_seq: int = Field(description="Up to here everything of the source is copied, or is not to be.")
    lag: int = Field(description="Seqs of the source behind that.")
    forwarded_total: int = Field(description="Copies made, ever.")
    blocked: str | None = Field(None, description="The error that keeps it from going on; left out when none does.")


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
    next_cursor: str | None = Field(None, description="Left out on the last page.")
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
    deleted: bool = Field(description="False when there was none.")
    performance: Performance

    model_config = _example(
        {"router": "audit", "deleted": True, "performance": EXAMPLE_PERFORMANCE},
        extra="forbid",
    )
