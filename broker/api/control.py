"""The control plane: an ordinary FastAPI application behind the dispatcher.

The dispatcher has found the route, read the body and judged its JSON before; what the framework raises comes back
as an exception, so that one place makes all answers.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from broker import VERSION
from broker.api import strict_json
from broker.api.answers import Answer, Headers, Message
from broker.api.request import Request
from broker.api.routes import backups, consumers, health, metrics, queues, routers, topics, watch
from broker.api.routing import RouteTable

_ROUTERS = (
    topics.router,
    queues.router,
    routers.router,
    consumers.router,
    watch.router,
    backups.router,
    health.router,
    metrics.router,
)
#: The largest body of a request that has no records: the event loop parses and checks it in one go.
MAX_CONTROL_BODY_BYTES: Final = 1 << 20
_WITH_BODY = {"PUT", "POST", "PATCH"}
#: What answers while the engine is not ready, too.
ALWAYS = {"/v0/health", "/healthz", "/v0/ready", "/readyz", "/v0/metrics"}


@cache
def control_plane() -> FastAPI:
    """The framework's application, with its own documentation pages off.

    One for all brokers of the process: the broker comes with each request.
    """
    app = FastAPI(title="topics", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)
    for router in _ROUTERS:
        app.include_router(router)
    for kind in (HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _raise_on)
    return app


def register(app: FastAPI, table: RouteTable) -> None:
    """Enter the application's routes in the table."""
    endpoint = ControlEndpoint(app)
    for router in _ROUTERS:
        for route in router.routes:
            if isinstance(route, APIRoute):
                for method in route.methods or ():
                    table.add(method, route.path, endpoint, always=route.path in ALWAYS)


async def _raise_on(_request: Any, error: Exception) -> Any:
    raise error


class ControlEndpoint:
    """Runs a request through the framework and gives back the whole answer."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, request: Request) -> Answer:
        method = request.scope["method"]
        body = b""
        headers: Headers = ()
        if method in _WITH_BODY:
            # An empty body is an empty object: every field of these requests has a default.
            body = await request.body(max_bytes=MAX_CONTROL_BODY_BYTES) or b"{}"
            await strict_json.check(body)
            headers = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)))
        scope = {
            **request.scope,
            "method": "GET" if method == "HEAD" else method,
            "headers": list(headers),
            "topics.request": request,
        }
        if request.scope["path"] not in ALWAYS:
            await request.broker.memory.begin_alone()
        exchange = _Exchange(body)
        await self._app(scope, exchange.receive, exchange.send)
        return exchange.answer()


class _Exchange:
    """Both ends of a call into the framework: gives the body once, collects what is sent."""

    def __init__(self, body: bytes) -> None:
        self._messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    async def receive(self) -> Message:
        return self._messages.pop() if self._messages else {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = list(message["headers"])
        else:
            self._parts.append(message.get("body", b""))

    def answer(self) -> Answer:
        headers = dict(self._headers)
        content_type = headers.pop(b"content-type", b"application/json")
        headers.pop(b"content-length", None)
        return Answer(
            b"".join(self._parts), status=self._status, content_type=content_type, headers=list(headers.items())
        )
