"""The calls of routers: requests, and parsers of the answers. No I/O.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from topics_client import answers
from topics_client.calls import getting, sending
from topics_client.errors import InvalidRequest
from topics_client.router_values import Router, RouterDeleted, RouterOptions, RouterPage, RouterPut
from topics_client.wire import Call, Replay, Request

_ROUTER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:>-]{0,254}")


def put_router(router: str, source: str, dest: str, options: RouterOptions) -> Call[RouterPut]:
    fields = {name: value for name, value in _named(options).items() if value is not None}
    request = sending("PUT", _path(router), {"source": source, "dest": dest, **fields})
    return Call(request=request, parse=answers.json_value(RouterPut))


def change_router(
    router: str, options: RouterOptions, *, source: str | None = None, dest: str | None = None
) -> Call[RouterPut]:
    """`source` and `dest`: the broker refuses to change them, so if they are given they must be the router's."""
    ends = {name: topic for name, topic in (("source", source), ("dest", dest)) if topic is not None}
    request = sending("PATCH", _path(router), {**ends, **_named(options)})
    return Call(request=request, parse=answers.json_value(RouterPut))


def get_router(router: str) -> Call[Router]:
    return Call(request=getting(_path(router)), parse=answers.json_value(Router))


def routers_page(
    prefix: str, source: str | None, dest: str | None, page_size: int, cursor: str | None
) -> Call[RouterPage]:
    query = {"prefix": prefix or None, "source": source, "dest": dest, "page_size": str(page_size), "cursor": cursor}
    return Call(request=getting("/v0/routers", query), parse=answers.json_value(RouterPage))


def delete_router(router: str) -> Call[RouterDeleted]:
    # Not repeated blindly: somebody may have created it again in between.
    request = Request(method="DELETE", target=_path(router), replay=Replay.IF_UNTOUCHED)
    return Call(request=request, parse=answers.json_value(RouterDeleted))


def _named(options: RouterOptions) -> dict[str, Any]:
    return {"from" if name == "start" else name: value for name, value in options.items()}


def _path(router: str) -> str:
    if not _ROUTER.fullmatch(router):
        raise InvalidRequest(
            f"{router!r} cannot be a router's name: 1 to 255 letters, digits, and . _ : - > (not first, but for _).",
            detail={"field": "router"},
        )
    return f"/v0/routers/{quote(router, safe='')}"
