"""Building the OpenAPI document takes a tenth of a second. It is built once, however many requests arrive before it is
ready."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.api.docs import DocsPages


async def test_the_openapi_document_is_made_once_for_concurrent_requests() -> None:
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(len(made))
        return {"openapi": "3.1.0", "paths": {}}

    pages = DocsPages(make)
    request: Any = None  # the document does not depend on it
    answers = await asyncio.gather(*[pages.openapi(request) for _ in range(50)])
    assert made == [0]
    assert {id(answer.body) for answer in answers} == {id(answers[0].body)}
