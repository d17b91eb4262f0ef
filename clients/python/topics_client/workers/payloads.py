"""The argument of a handler: the data of a job, as the type in the annotation of its first parameter."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from topics_client.errors import InvalidRequest
from topics_client.values import Job
from topics_client.workers.context import JobContext


class InvalidPayload(Exception):
    """The data of a job does not fit its handler. A worker rejects such jobs, because no other attempt can succeed."""


def reader(kind: Any) -> Callable[[Job], Any]:
    """Reads the data of jobs as `kind`: a pydantic model, anything that msgspec decodes (dataclasses, Structs,
    TypedDicts, lists of them, ...), bytes for the JSON text, or `Job` for the whole job. Raises InvalidPayload."""
    if kind is Job:
        return lambda job: job
    if kind is bytes:
        return lambda job: job.data_raw
    # Recognised by its methods: only programs that use pydantic import it.
    decode: Callable[[bytes], Any] | None = getattr(kind, "model_validate_json", None)
    if decode is None:
        try:
            decode = msgspec.json.Decoder(Any if kind is inspect.Parameter.empty else kind).decode
        except TypeError as error:
            raise InvalidRequest(f"Jobs cannot be read as {kind!r}: {error}") from error

    def read(job: Job) -> Any:
        try:
            return decode(job.data_raw)
        except ValueError as error:  # the errors of msgspec and pydantic are ValueErrors
            raise InvalidPayload(f"Not a {getattr(kind, '__name__', kind)}: {error}") from error

    return read


def parameters(handler: Callable[..., Any]) -> tuple[Any, bool]:
    """The type that the handler takes jobs as, and whether it has a JobContext as its second parameter."""
    found = list(inspect.signature(handler).parameters.values())
    if not 1 <= len(found) <= 2 or any(each.kind is each.KEYWORD_ONLY for each in found):
        raise InvalidRequest(
            "A handler has one parameter for the data of the job, and optionally a second one for the JobContext."
        )
    function = handler if isinstance(handler, types.FunctionType | types.MethodType) else type(handler).__call__
    try:
        annotated = typing.get_type_hints(function)
    except NameError as error:
        raise InvalidRequest(f"The annotations of {function.__qualname__} cannot be read: {error}") from error
    kind = annotated.get(found[0].name, inspect.Parameter.empty)
    if kind is JobContext:
        raise InvalidRequest("The first parameter of a handler is the data of the job; the JobContext is the second.")
    return kind, len(found) == 2
