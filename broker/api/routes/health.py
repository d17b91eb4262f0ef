"""Probes, which answer even while the engine is not ready.

Source: docs/reference/api.md#operations.
"""

from __future__ import annotations

import msgspec

import kernel
from broker import VERSION
from broker.api.control import ControlOperations, Current
from broker.api.operation import Operation, Owner
from broker.api.refusals import refusals
from broker.api.request import Request
from broker.auth import PROBE
from broker.content import Answer
from broker.service import readiness
from schemas import HealthAnswer, ReadyAnswer


def health(request: Request) -> Answer:
    """Answer a probe. Many may ask at once, so this creates no object that is not needed."""
    broker = request.broker
    cells = broker.cells
    return Answer(
        msgspec.json.encode(
            {
                "status": "ok",
                "version": VERSION,
                "uptime_ms": broker.uptime_ms(),
                "cluster_id": broker.engine.cluster_id or None,
                "kernel": "compiled" if kernel.COMPILED else "python",
                **({} if cells is None else {"set_id": cells.role.set_id, "cell": cells.me}),
            }
        )
    )


def _health(path: str, name: str = "") -> Operation:
    """A probe, answered without a task: a thousand at once take a few hundredths of a second."""
    return Operation(
        method="GET",
        path=path,
        name=name,
        handler=health,
        rule=PROBE,
        is_direct=True,
        always=True,
        owner=Owner.ALL,
        tag="operations",
        summary="Check health",
        answer=HealthAnswer,
    )


operations = ControlOperations(tag="operations", owner=Owner.ALL)
operations.extend((_health("/v0/health", "get_health"), _health("/healthz")))


@operations.get(
    "/v0/ready",
    PROBE,
    always=True,
    summary="Check readiness",
    responses=refusals("not_ready", "shutting_down", "storage_failed"),
)
@operations.get("/readyz", PROBE, always=True, documented=False)
async def get_readiness(current: Current) -> ReadyAnswer:
    broker = current.broker
    topics = readiness.check(broker.engine, broker.cells, stopping=broker.stopping)
    return ReadyAnswer(status="ready", wal_replay_complete=True, topics=topics)
