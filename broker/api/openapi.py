"""The OpenAPI document, made from the declarations of all operations.

FastAPI describes the control plane's operations, from the signatures of their handlers; the others describe
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from broker import VERSION
from broker.api.openapi_fields import describe_nulls, name_error_codes
from broker.api.operation import Operation
from broker.api.refusals import of_any, refusals
from broker.content import errors
from schemas import AnswerModel, ErrorAnswer, RequestModel

_DESCRIPTION = """\
Durable topics over HTTP. A topic is an append-only log of JSON records with consecutive seqs.

Bodies are JSON in UTF-8, nested at most 256 levels deep. `data` and `meta` are returned byte for byte.
All errors are `{"error": {"code", "message", "detail"?}}`; programs should use `code`.
"""
_REF = "#/components/schemas/{model}"
_LICENSE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_SERVERS: Final = [{"url": "/", "description": "The broker that serves this document."}]
_TAGS: Final = {
    "topics": "Make, change, describe, list and delete topics, and delete records of them.",
    "records": "Append records to a topic, and read them by seq.",
    "queues": "Claim and settle jobs, and administer queues.",
    "routers": "Copy what is appended to one topic into another.",
    "consumers": "Read with a position that the broker keeps.",
    "watch": "Get records as they are committed: server-sent events, or a WebSocket.",
    "segments": "Read a topic in bulk: the files that its records are stored in.",
    "operations": "Probes, metrics and backups.",
}
_SECURITY_SCHEMES: Final = {
    "key": {"type": "http", "scheme": "bearer", "description": "One of the broker's keys, if it has any."},
    "token": {
        "type": "apiKey", "in": "query", "name": "token",
        "description": "The same, for event streams: a browser's EventSource sends no headers.",
    },
}  # fmt: skip


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document. Made once, at the first request for it."""
    named = [operation for operation in operations if operation.name]
    routes = [operation.route for operation in named if operation.route is not None]
    others = [operation for operation in named if operation.route is None]
    doc = get_openapi(
        title="topics",
        version=VERSION,
        description=_DESCRIPTION,
        routes=routes,
        servers=_SERVERS,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        license_info=_LICENSE,
    )
    schemas: dict[str, Any] = doc.setdefault("components", {}).setdefault("schemas", {})
    for operation in others:
        doc["paths"].setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    schemas.update(_schemas(others))
    _drop_framework_refusals(doc)
    for operation in named:
        described = doc["paths"][operation.path][operation.method.lower()]
        _describe_access(described, operation)
        _add_refusals_of_any(described, operation)
    doc["components"]["securitySchemes"] = _SECURITY_SCHEMES
    describe_nulls(doc, [each.commands.__name__ for each in named if each.commands is not None])
    name_error_codes(doc, list(errors.CODES))
    _lift_examples(doc)
    return doc


def _schemas(operations: Iterable[Operation]) -> dict[str, Any]:
    models: list[tuple[type[BaseModel], Any]] = [(ErrorAnswer, "validation")]
    for operation in operations:
        named = (operation.answer, operation.request, operation.events, operation.commands)
        models += [(model, "validation") for model in named if model is not None]
    _, definitions = models_json_schema(models, ref_template=_REF)
    return definitions["$defs"]


def _described(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": operation.description,
        "operationId": operation.name,
        "parameters": [*operation.parameters],
        "responses": {
            str(status): _answer(operation, description) for status, description in operation.successes.items()
        }
        | {
            str(status): _content(ErrorAnswer, refusal["description"])
            for status, refusal in refusals(*operation.refusals).items()
        },
    }
    if operation.request is not None:
        described["requestBody"] = {
            "content": {"application/json": {"schema": _reference(operation.request)}},
        }
    return described


def _answer(operation: Operation, description: str) -> dict[str, Any]:
    if operation.answer is not None:
        return _content(operation.answer, description)
    # Bytes have no schema, as in OpenAPI 3.1; text that consists of events has theirs as that of its content.
    content: dict[str, Any] = {"example": operation.example}
    carried = [_reference(model) for model in (operation.events, operation.commands) if model is not None]
    if carried:
        content["schema"] = {
            "type": "string",
            "contentMediaType": operation.media_type,
            "contentSchema": carried[0] if len(carried) == 1 else {"anyOf": carried},
        }
    return {
        "description": description,
        "headers": {name: {"schema": {"type": "string"}} for name in operation.headers},
        "content": {operation.media_type: content},
    }


def _content(model: type[BaseModel], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _reference(model)}}}


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _drop_framework_refusals(doc: dict[str, Any]) -> None:
    """Remove the framework's 422: here, invalid fields are answered 400."""
    for path in doc["paths"].values():
        for operation in path.values():
            refusal = operation["responses"].get("422", {})
            if "HTTPValidationError" in str(refusal):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        doc["components"]["schemas"].pop(name, None)


def _describe_access(described: dict[str, Any], operation: Operation) -> None:
    """Describe that the operation needs a key, if the broker has keys, and its scopes."""
    if operation.rule.probe:
        described["security"] = [{}, {"key": []}]  # with TOPICS_PROBE_AUTH a key is needed here, too
        return
    described["security"] = [{"key": []}, *([{"token": []}] if operation.rule.token else []), {}]
    described["x-scopes"] = sorted(operation.rule.scopes)


def _add_refusals_of_any(described: dict[str, Any], operation: Operation) -> None:
    """Add the refusals that any operation of this kind may answer: those before its handler, and internal failures."""
    codes = of_any(operation.rule, has_body=operation.has_body, always=operation.always)
    for status, refusal in refusals(*codes).items():
        answers: dict[str, Any] = described["responses"]
        said = answers.setdefault(str(status), _content(ErrorAnswer, ""))
        missing = [code for code in refusal["description"].split(" or ") if code not in said["description"]]
        said["description"] = " or ".join([said["description"], *missing] if said["description"] else missing)


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _lift_examples(doc: dict[str, Any]) -> None:
    """Copy the example of each body's model to where viewers look for one."""
    schemas = doc["components"]["schemas"]
    for model in (*_models(AnswerModel), *_models(RequestModel)):
        # Taken from the model itself, because the framework drops nulls from an example.
        extra: Any = model.model_config.get("json_schema_extra")
        if extra and model.__name__ in schemas:
            schemas[model.__name__]["examples"] = extra["examples"]
    for path in doc["paths"].values():
        for operation in path.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in (body["content"] for body in bodies if "content" in body):
                media = content.get("application/json", {})
                name = media.get("schema", {}).get("$ref", "").rpartition("/")[2]
                examples = schemas.get(name, {}).get("examples")
                if examples:
                    media["example"] = examples[0]
