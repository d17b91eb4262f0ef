"""Probes and metrics: what answers also while the engine is not ready (source: api.md §9)."""

from __future__ import annotations

from fastapi import APIRouter

from broker import VERSION
from broker.api.refusals import refusals
from broker.api.routes.topics import Current
from broker.service import readiness
from schemas.health import HealthAnswer, ReadyAnswer

router = APIRouter(tags=["operations"])


@router.get("/v0/health", summary="Whether the process lives")
@router.get("/healthz", include_in_schema=False)
async def health(current: Current) -> HealthAnswer:
    broker = current.broker
    return HealthAnswer(
        status="ok",
        version=VERSION,
        uptime_ms=broker.uptime_ms(),
        cluster_id=broker.engine.cluster_id or None,
    )


@router.get(
    "/v0/ready",
    summary="Whether requests are served",
    responses=refusals("not_ready", "shutting_down", "storage_failed"),
)
@router.get("/readyz", include_in_schema=False)
async def ready(current: Current) -> ReadyAnswer:
    broker = current.broker
    topics = readiness.check(broker.engine, stopping=broker.stopping)
    return ReadyAnswer(status="ready", wal_replay_complete=True, topics=topics)
