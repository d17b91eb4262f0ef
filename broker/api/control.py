"""Operations of the control plane. FastAPI parses parameters and bodies by the handler's signature, and writes answers
by its models.

`broker.api.dispatch` has already routed and admitted the request. So this module runs only the handler that FastAPI
makes for a route, and not FastAPI's application, which would repeat routing, middleware and error pages. Errors go to
the dispatcher, which answers all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Path, Query
from fastapi import Request as FrameworkRequest
from fastapi.routing import APIRoute

from broker.api.operation import WITH_BODY, Operation, Owner
from broker.api.request import Request
from broker.auth import Rule
from broker.content import Answer, strict_json
from schemas import TOPIC_NAME_PATTERN, Performance, QueryU64

#: The largest body of a request without records: the event loop parses and checks it at once.
MAX_CONTROL_BODY_BYTES: Final = 1 << 20
#: The scope's keys for the exit stacks that close the dependencies of a FastAPI handler.
_STACKS: Final = ("fastapi_middleware_astack", "fastapi_inner_astack", "fastapi_function_astack")

F = TypeVar("F", bound=Callable[..., Any])


async def current(request: FrameworkRequest) -> Request:
    """The broker's own request, from the framework's."""
    return request.scope["topics.request"]


Current = Annotated[Request, Depends(current)]
TopicName = Annotated[
    str, Path(description="The topic's name.", examples=["orders"], json_schema_extra={"pattern": TOPIC_NAME_PATTERN})
]
PartitionNumber = Annotated[QueryU64 | None, Query(description="The partition, counted from 0; the default is 0.")]


def performance(request: Request) -> Performance:
    """The `performance` field for an answer that is made now."""
    return Performance(server_total_ms=round(request.elapsed_ms(), 3))


class ControlOperations(list[Operation]):
    """Declares operations below one path: the functions that it decorates are their handlers, in FastAPI's form. The
    name of a function is the operation's id.

    orders = ControlOperations("/v0/orders", tag="orders")

    @orders.put("/{order}", Rule(ADMIN), summary="Make an order")
    async def put_order(current: Current, order: str, body: OrderRequest) -> OrderAnswer: ...
    """

    def __init__(self, prefix: str = "", *, tag: str, owner: Owner = Owner.TOPIC) -> None:
        super().__init__()
        self._prefix = prefix
        self._tag = tag
        self._owner = owner

    def get(self, path: str, rule: Rule, **described: Any) -> Callable[[F], F]:
        return self._declare("GET", path, rule, **described)

    def put(self, path: str, rule: Rule, **described: Any) -> Callable[[F], F]:
        return self._declare("PUT", path, rule, **described)

    def post(self, path: str, rule: Rule, **described: Any) -> Callable[[F], F]:
        return self._declare("POST", path, rule, **described)

    def patch(self, path: str, rule: Rule, **described: Any) -> Callable[[F], F]:
        return self._declare("PATCH", path, rule, **described)

    def delete(self, path: str, rule: Rule, **described: Any) -> Callable[[F], F]:
        return self._declare("DELETE", path, rule, **described)

    def _declare(
        self,
        method: str,
        path: str,
        rule: Rule,
        *,
        always: bool = False,
        owner: Owner | None = None,
        documented: bool = True,
        **described: Any,
    ) -> Callable[[F], F]:
        """`always`, `owner`: see `Operation`; `owner` None: that of all. `documented`: whether the OpenAPI document has
        it. `described`: as `APIRoute` takes it.
        """

        def declare(function: F) -> F:
            whole = self._prefix + path
            route = APIRoute(
                whole,
                function,
                methods=[method],
                tags=[self._tag],
                operation_id=function.__name__,
                include_in_schema=documented,
                **described,
            )
            self.append(
                Operation(
                    method=method,
                    path=whole,
                    handler=_Served(route, method, waits=not always),
                    rule=rule,
                    reads_body=True,
                    always=always,
                    owner=owner or self._owner,
                    name=function.__name__ if documented else "",
                    tag=self._tag,
                    route=route,
                )
            )
            return function

        return declare


class _Body(FrameworkRequest):
    """A request whose body has been read. Our own parser decodes its JSON: the framework's fails on very long integers
    without naming a field."""

    def __init__(self, scope: Any, body: bytes) -> None:
        super().__init__(scope)
        self._body = body

    async def json(self) -> Any:
        return strict_json.loads(self._body)


class _Served:
    """The handler of one operation: wraps FastAPI's handler between our request and our answer.

    `waits`: it runs one after another with other handlers that may keep the event loop busy for long.
    """

    __slots__ = ("_handle", "_has_body", "_parameters", "_waits")

    def __init__(self, route: APIRoute, method: str, *, waits: bool) -> None:
        self._handle = route.get_route_handler()
        self._parameters = tuple(part[1:-1] for part in route.path.split("/") if part.startswith("{"))
        self._has_body = method in WITH_BODY
        self._waits = waits

    async def __call__(self, request: Request) -> Answer:
        body, headers = b"", []
        if self._has_body:
            # An empty body is an empty object: every field of these requests has a default.
            body = await request.read_body(max_bytes=MAX_CONTROL_BODY_BYTES) or b"{}"
            await strict_json.check(body)
            headers = [(b"content-type", b"application/json")]
        if self._waits:
            await request.broker.memory.begin_alone()
        async with AsyncExitStack() as stack:
            scope = {
                **request.scope,
                **dict.fromkeys(_STACKS, stack),
                "headers": headers,
                "path_params": dict(zip(self._parameters, request.values, strict=True)),
                "topics.request": request,
            }
            response = await self._handle(_Body(scope, body))
        return Answer(
            bytes(response.body),
            status=response.status_code,
            content_type=response.headers.get("content-type", "application/json").encode("latin-1"),
            headers=[each for each in response.raw_headers if each[0] not in (b"content-type", b"content-length")],
        )
