"""GET /v0/metrics."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from broker.api.control import ControlOperations, Current
from broker.api.exposition import families, reaching
from broker.api.operation import Owner
from broker.auth import READ, Rule
from broker.content import OK, prefers_json, yield_to_loop
from broker.telemetry import as_json, as_text

operations = ControlOperations(tag="operations", owner=Owner.ALL)

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_RESPONSES: dict[int | str, dict[str, Any]] = {
    OK: {
        "description": "Prometheus text, or JSON if Accept prefers that.",
        "content": {
            "text/plain": {"schema": {"type": "string"}, "example": "# TYPE topics_ready gauge\ntopics_ready 1\n"},
            "application/json": {
                "schema": {"type": "object"},
                "example": {
                    "metrics": [
                        {
                            "name": "topics_ready",
                            "type": "gauge",
                            "help": "Whether requests are served.",
                            "samples": [{"name": "topics_ready", "labels": {}, "value": 1}],
                        }
                    ]
                },
            },
        },
    }
}


@operations.get(
    "/v0/metrics", Rule(READ), always=True, summary="Get metrics", response_class=Response, responses=_RESPONSES
)
async def get_metrics(current: Current) -> Response:
    # One at a time: with many topics, the collected metrics take a few megabytes.
    async with current.broker.scraping:
        await yield_to_loop()
        found = [*reaching(families(current.broker), current.access)]
        if prefers_json(current.headers.get(b"accept", b"")):
            return Response(await as_json(found), media_type="application/json")
        return Response(await as_text(found), media_type=_TEXT)
