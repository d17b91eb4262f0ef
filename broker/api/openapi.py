"""The OpenAPI document, made from the declarations of all operations.

FastAPI describes the control plane's operations, from the signatures of their handlers; the others describe
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from broker import VERSION
from broker.api.openapi_fields import say_what_null_means
from broker.api.operation import Operation
from broker.api.refusals import of_any, refusals
from schemas import AnswerModel, ErrorAnswer, RequestModel

_DESCRIPTION = """\
Durable topics over HTTP. A topic is an append-only log of JSON records with consecutive seqs.

Bodies are JSON in UTF-8, nested at most 256 levels deep. `data` and `meta` are given back byte for byte.
Every refusal is `{"error": {"code", "message", "detail"?}}`; programs go by `code`.
"""
_REF = "#/components/schemas/{model}"


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document. Made once, at the first request for it."""
    named = [operation for operation in operations if operation.name]
    routes = [operation.route for operation in named if operation.route is not None]
    others = [operation for operation in named if operation.route is None]
    doc = get_openapi(title="topics", version=VERSION, description=_DESCRIPTION, routes=routes)
    schemas: dict[str, Any] = doc.setdefault("components", {}).setdefault("schemas", {})
    for operation in others:
        doc["paths"].setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    schemas.update(_schemas(others))
    _drop_framework_refusals(doc)
    for operation in named:
        described = doc["paths"][operation.path][operation.method.lower()]
        _say_who_may(described, operation)
        _add_refusals_of_any(described, operation)
    doc["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    say_what_null_means(doc)
    _lift_examples(doc)
    return doc


def _schemas(operations: Iterable[Operation]) -> dict[str, Any]:
    models: list[tuple[type[BaseModel], Any]] = [(ErrorAnswer, "validation")]
    for operation in operations:
        if operation.answer is not None:
            models.append((operation.answer, "validation"))
        if operation.request is not None:
            models.append((operation.request, "validation"))
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
    # Bytes or events have no schema, as in OpenAPI 3.1.
    return {
        "description": description,
        "headers": {name: {"schema": {"type": "string"}} for name in operation.headers},
        "content": {operation.media_type: {"example": operation.example}},
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


def _say_who_may(described: dict[str, Any], operation: Operation) -> None:
    """Describe that the operation needs a key, if the broker has keys, and its scopes."""
    if not operation.rule.probe:
        described["security"] = [{"key": []}, {}]
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
