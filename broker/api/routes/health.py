"""Probes and metrics: what answers also while the engine is not ready.

Source: docs/reference/api.md#operations.
"""

from __future__ import annotations

import kernel
from broker import VERSION
from broker.api.control import ControlOperations, Current
from broker.api.refusals import refusals
from broker.auth.rules import PROBE
from broker.service import readiness
from schemas.health import HealthAnswer, ReadyAnswer

operations = ControlOperations(tag="operations")


@operations.get("/v0/health", PROBE, always=True, summary="Whether the process lives")
@operations.get("/healthz", PROBE, always=True, documented=False)
async def health(current: Current) -> HealthAnswer:
    broker = current.broker
    return HealthAnswer(
        status="ok",
        version=VERSION,
        uptime_ms=broker.uptime_ms(),
        cluster_id=broker.engine.cluster_id or None,
        kernel="compiled" if kernel.COMPILED else "python",
    )


@operations.get(
    "/v0/ready",
    PROBE,
    always=True,
    summary="Whether requests are served",
    responses=refusals("not_ready", "shutting_down", "storage_failed"),
)
@operations.get("/readyz", PROBE, always=True, documented=False)
async def ready(current: Current) -> ReadyAnswer:
    broker = current.broker
    topics = readiness.check(broker.engine, stopping=broker.stopping)
    return ReadyAnswer(status="ready", wal_replay_complete=True, topics=topics)
