"""One operation of the HTTP API, declared once: its path, its scopes, its request and answer, and its handler.

Routes, scopes, the OpenAPI document and the route names of the metrics all come from these declarations. Each one is
next to its handler in `broker.api.routes`; `broker.api.app` collects them in one table.
"""

from __future__ import annotations

import enum
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

#: Returns the answer, or an awaitable for it: a `Pending` that the engine resolves, or a coroutine.
Handler: TypeAlias = "Callable[[Request], Answer | Awaitable[Answer]]"
WITH_BODY: Final = frozenset({"PUT", "POST", "PATCH"})
#: A parameter as OpenAPI describes it.
Parameter: TypeAlias = dict[str, Any]


class Owner(enum.Enum):
    """Which cell of a set carries out an operation (docs/cells.md#the-gateway)."""

    #: The cell that has the topic in the path.
    TOPIC = enum.auto()
    #: The home cell of the consumer group in the path.
    GROUP = enum.auto()
    #: Cell 0, which has the graph of all routers.
    GRAPH = enum.auto()
    #: Any cell: all of them give the same answer.
    ANY = enum.auto()
    #: Every process by itself, a gateway too: the answer needs no cell.
    SELF = enum.auto()
    #: All cells, or those that the request's body names. The gateway merges their answers.
    ALL = enum.auto()


class Refuse(Protocol):
    """Makes the answer to a request that ended in an error. Never raises."""

    def __call__(self, error: Exception, *, request_id: str) -> Answer: ...


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """`always`: it answers even while the engine is not ready. `refuse` makes its answers to errors.

    `reads_body`: the handler reads the body itself. Otherwise the JSON body is read first, whole, into `request.body`.
    `is_direct`: it is so frequent that the HTTP/1.1 protocol calls the handler without a task (`broker.api.hot`).
    `owner`: which cell of a set carries it out.

    The other fields are for the OpenAPI document, which leaves out an operation without a `name`: a verb and a noun,
    `append_records`. An operation without a model for its answer returns bytes of `media_type`, as in `example`;
    `events` is the model of each event or message in them, `commands` that of each message to the broker. `refusals`
    are its error codes, without those that any operation may answer with. `route`: FastAPI reads the models and
    parameters from the handler's signature.
    """

    method: str
    path: str
    handler: Handler
    rule: Rule
    reads_body: bool = False
    is_direct: bool = False
    always: bool = False
    owner: Owner = Owner.TOPIC
    refuse: Refuse = errors.answer
    name: str = ""
    tag: str = "records"
    summary: str = ""
    description: str = ""
    request: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    events: type[BaseModel] | None = None
    commands: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()
    successes: Mapping[int, str] = MappingProxyType({OK: "Done."})
    refusals: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    media_type: str = "application/octet-stream"
    example: str = ""
    route: APIRoute | None = None

    @property
    def of_partition(self) -> bool:
        """Whether the query of its requests may name a partition of the topic in the path."""
        return self.method == "POST" or not self.path.endswith("/{topic}")

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
    """A header that the operation reads."""
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
PARTITION: Final = in_query("partition", NUMBER, "The partition, counted from 0; the default is 0.")
