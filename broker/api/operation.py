"""One operation of the HTTP API, declared once: where it is, who may call it, what it takes and gives, and its handler.

Routes, scopes, the OpenAPI document and the route names of the metrics are all made from these declarations. Each
stands beside its handler in `broker.api.routes`; `broker.api.app` puts them into one table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeAlias

import msgspec
from fastapi.routing import APIRoute
from msgspec import Meta
from pydantic import BaseModel

from broker.auth import Rule
from broker.content import OK, Answer, errors
from schemas import TOPIC_NAME_PATTERN

if TYPE_CHECKING:
    from broker.api.request import Request

#: Answers at once, or returns what will have the answer: something pending in the engine, or a coroutine.
Handler: TypeAlias = "Callable[[Request], Answer | Awaitable[Answer]]"
WITH_BODY: Final = frozenset({"PUT", "POST", "PATCH"})
#: A parameter as OpenAPI describes it.
Parameter: TypeAlias = dict[str, Any]


class Refuse(Protocol):
    """Makes the answer to a request that ended in an error. Never raises."""

    def __call__(self, error: Exception, *, request_id: str) -> Answer: ...


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """`always`: answers also while the engine is not ready. `refuse` makes its answers to errors.

    `reads_body`: the handler reads the body itself. Else a JSON body is read first and is whole in `request.body`.
    `is_direct`: asked so often that the HTTP/1.1 protocol calls the handler itself (`broker.api.hot`).

    The other fields are for the OpenAPI document, which leaves out an operation without a `name`. Without a model for
    its answer it gives bytes of `media_type`, as `example` shows. `refusals` are codes of errors, without those that
    any operation may answer with. `route`: FastAPI knows the models and parameters, from the signature of the handler.
    """

    method: str
    path: str
    handler: Handler
    rule: Rule
    reads_body: bool = False
    is_direct: bool = False
    always: bool = False
    refuse: Refuse = errors.answer
    name: str = ""
    tag: str = "records"
    summary: str = ""
    description: str = ""
    request: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()
    successes: Mapping[int, str] = MappingProxyType({OK: "Done."})
    refusals: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    media_type: str = "application/octet-stream"
    example: str = ""
    route: APIRoute | None = None

    @property
    def has_body(self) -> bool:
        """Whether its requests may have a body."""
        return self.method in WITH_BODY


def in_path(name: str, schema: dict[str, Any], description: str = "") -> Parameter:
    """A parameter of the path."""
    return _parameter(name, "path", schema, description, required=True)


def in_query(name: str, schema: dict[str, Any], description: str = "", *, required: bool = False) -> Parameter:
    """A parameter of the query."""
    return _parameter(name, "query", schema, description, required=required)


def in_header(name: str, description: str) -> Parameter:
    """A header that the operation looks at."""
    return _parameter(name, "header", {"type": "string"}, description, required=False)


def _parameter(name: str, where: str, schema: dict[str, Any], description: str, *, required: bool) -> Parameter:
    parameter: Parameter = {"name": name, "in": where, "required": required, "schema": schema}
    return parameter | ({"description": description} if description else {})


#: A field that is a whole number, for bodies that msgspec decodes.
Natural: TypeAlias = Annotated[int, Meta(ge=0)]
NUMBER: Final[dict[str, Any]] = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
TOPIC: Final = in_path(
    "topic", {"type": "string", "pattern": TOPIC_NAME_PATTERN, "examples": ["orders"]}, "The topic's name."
)
PARTITION: Final = in_query("partition", NUMBER, "Which partition, counted from 0; 0 unless said.")
