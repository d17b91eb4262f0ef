"""What a hook of the client sees of each attempt, for measurements and traces. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TypeAlias

from topics_client.wire import NoReply, Reply, Request

#: After this segment of a path comes the name of one of these.
_NAMES = {
    "topics": "{topic}",
    "records": "{seq}",
    "consumers": "{consumer}",
    "segments": "{first_seq}",
    "routers": "{router}",
    "watch": "{wid}",
}


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One attempt of a call. `route` is its path with the parameters' names, as in the OpenAPI document, so it has few
    values and no names of topics. `number` counts the attempts of the call from 1. `headers` are sent with the attempt;
    a hook may add some.

    Afterwards `status` is that of the answer, or `failure` says why there is none. `seconds` is how long it took.
    """

    method: str
    route: str
    number: int
    headers: dict[str, str] = field(default_factory=dict[str, str])
    status: int | None = None
    failure: str | None = None
    seconds: float = 0.0


#: Called before each attempt. The context manager that it returns is entered before the attempt and left after it. An
#: error that it raises is raised by the call.
Instrument: TypeAlias = Callable[[Attempt], AbstractContextManager[object]]


class Observed:
    """An attempt that a hook sees, entered around the sending of `request`. `end` gets the outcome."""

    def __init__(self, instrument: Instrument, request: Request, number: int) -> None:
        self._request = request
        self._attempt = Attempt(method=request.method, route=route_of(request.target), number=number)
        self._hook = instrument(self._attempt)
        self._began_s = 0.0

    @property
    def request(self) -> Request:
        """The request with what the hook has added."""
        return replace(self._request, headers={**self._request.headers, **self._attempt.headers})

    def __enter__(self) -> Observed:
        self._hook.__enter__()
        self._began_s = time.monotonic()
        return self

    def end(self, outcome: Reply | NoReply) -> Reply | NoReply:
        """The attempt has ended with this outcome, which is returned."""
        self._attempt.seconds = time.monotonic() - self._began_s
        if isinstance(outcome, Reply):
            self._attempt.status = outcome.status
        else:
            self._attempt.failure = outcome.reason
        return outcome

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whatever the hook does with the error, the call ends with it.
        self._hook.__exit__(kind, error, trace)


def route_of(target: str) -> str:
    """The template of a path of the API."""
    found: list[str] = []
    name: str | None = None
    for segment in target.partition("?")[0].split("/"):
        found.append(name or segment)
        name = _NAMES.get(segment) if name is None else None
    return "/".join(found)
