"""Routers: their control plane."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Response

from broker.api.control import ControlOperations, Current, performance
from broker.api.operation import Owner
from broker.api.refusals import refusals
from broker.auth import ADMIN, DELETE, READ, Rule
from broker.content import CREATED
from broker.service import routers
from schemas import (
    ROUTER_NAME_PATTERN,
    NameInQuery,
    QueryU64,
    RouterAnswer,
    RouterChange,
    RouterDeleteAnswer,
    RouterListAnswer,
    RouterPutAnswer,
    RouterRequest,
)
from storage.routers import RouterState

operations = ControlOperations("/v0/routers", tag="routers", owner=Owner.GRAPH)

RouterName = Annotated[
    str, Path(description="The router's name.", examples=["audit"], json_schema_extra={"pattern": ROUTER_NAME_PATTERN})
]
_WRITES = ("wal_saturated", "storage_failed", "storage_full")


@operations.put(
    "/{router}",
    Rule(ADMIN),
    summary="Create a router, or replace its definition",
    description="Omitted fields return to their defaults. source and dest cannot be changed. A new definition "
    "applies to records that are not copied yet. 201: the router was created.",
    responses={CREATED: {"model": RouterPutAnswer, "description": "The router was created."}}
    | refusals(
        "invalid_request", "topic_not_found", "topic_exists_incompatible", "router_cycle", "throttled", *_WRITES
    ),
)
async def put_router(current: Current, response: Response, router: RouterName, body: RouterRequest) -> RouterPutAnswer:
    definition = routers.definition_of(router, body)
    current.access.require(ADMIN, (definition.source, definition.dest))
    state, created = await routers.put(current.broker.engine, router, body)
    if created:
        response.status_code = CREATED
    return RouterPutAnswer.model_validate(
        {**_definition(state), "created": created, "performance": performance(current)}
    )


@operations.patch(
    "/{router}",
    Rule(ADMIN),
    summary="Change settings of a router",
    description="Omitted fields stay. null is a value for filter and means all records. source and dest cannot be"
    " changed. A change applies to records that are not copied yet.",
    responses=refusals("invalid_request", "router_not_found", "topic_exists_incompatible", "router_cycle", *_WRITES),
)
async def change_router(current: Current, router: RouterName, body: RouterChange) -> RouterPutAnswer:
    current.access.require(ADMIN, routers.ends(body.source, body.dest))
    state = await routers.change(current.broker.engine, router, body)
    return RouterPutAnswer.model_validate({**_definition(state), "created": False, "performance": performance(current)})


@operations.get(
    "/{router}",
    Rule(READ),
    summary="Describe a router",
    response_model_exclude_unset=True,
    responses=refusals("invalid_request", "router_not_found"),
)
async def get_router(current: Current, router: RouterName) -> RouterAnswer:
    state = await routers.describe(current.broker.engine, router)
    return RouterAnswer.model_validate({**_entry(state), "performance": performance(current)})


@operations.get(
    "",
    Rule(READ),
    owner=Owner.ALL,
    summary="List routers",
    description="Ordered by the bytes of the name.",
    response_model_exclude_unset=True,
    responses=refusals("invalid_request"),
)
async def list_routers(
    current: Current,
    prefix: Annotated[str, Query(description="Only names with this prefix.")] = "",
    source: Annotated[NameInQuery | None, Query(description="Only routers from this topic.")] = None,
    dest: Annotated[NameInQuery | None, Query(description="Only routers to this topic.")] = None,
    page_size: Annotated[QueryU64 | None, Query(description="At most 1000; the default is 100.")] = None,
    cursor: Annotated[str | None, Query(description="The next_cursor of the previous page.")] = None,
) -> RouterListAnswer:
    source, dest = source or None, dest or None
    current.access.require(READ, routers.ends(source, dest))
    states, next_cursor = routers.page(
        current.broker.engine,
        prefix=prefix,
        source=source,
        dest=dest,
        page_size=page_size,
        cursor=cursor,
        only=current.access.prefixes,
    )
    fields: dict[str, Any] = {"routers": [_entry(state) for state in states], "performance": performance(current)}
    return RouterListAnswer.model_validate(fields if next_cursor is None else {**fields, "next_cursor": next_cursor})


@operations.delete(
    "/{router}",
    Rule(DELETE),
    summary="Delete a router",
    description="Its copies stay.",
    responses=refusals("invalid_request", *_WRITES),
)
async def delete_router(current: Current, router: RouterName) -> RouterDeleteAnswer:
    deleted = await routers.delete(current.broker.engine, router)
    return RouterDeleteAnswer(router=router, deleted=deleted, performance=performance(current))


def _definition(state: RouterState) -> dict[str, Any]:
    return {"router": state.name, **state.definition.to_map()}


def _entry(state: RouterState) -> dict[str, Any]:
    entry = {
        **_definition(state),
        "cursor_seq": state.cursor_seq,
        "lag": state.lag,
        "forwarded_total": state.forwarded_total,
    }
    return entry if state.blocked is None else {**entry, "blocked": state.blocked}
