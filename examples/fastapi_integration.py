"""A FastAPI service that stores orders in the broker and packs them in the background, in the same event loop.

make run                                         # the broker, in another terminal
.venv/bin/uvicorn --app-dir examples fastapi_integration:app --port 8000
curl 127.0.0.1:8000/orders -H 'Content-Type: application/json' -H 'Idempotency-Key: o-1' -d '{"item":"tea"}'
curl 127.0.0.1:8000/packed
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from topics_client import AsyncClient, Client, JobContext, TopicsError, Worker

URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")


class Order(BaseModel):
    item: str
    pieces: int = 1


class State(TypedDict):
    broker: AsyncClient


packed: list[str] = []


async def pack(order: Order, context: JobContext) -> None:
    """May take longer than the lease, which the worker renews. Cancelled if the lease is lost to another process."""
    await asyncio.sleep(0.1)
    packed.append(f"{order.pieces} x {order.item}")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[State]:
    # One client for all requests: it keeps connections. The worker has a second client, which it uses from threads:
    # leases are renewed even while this event loop is busy.
    async with AsyncClient(URL) as broker:
        await broker.put_topic("packing", type="queue", durability="fsync")
        with Client(URL) as client:
            worker = Worker(client, grace="5s")
            worker.queue("packing", concurrency=8, lease="30s")(pack)
            # Leaving the block finishes the orders in work and gives the others back before the client is closed.
            async with worker:
                yield {"broker": broker}


app = FastAPI(lifespan=lifespan)


def the_broker(request: Request) -> AsyncClient:
    return request.state.broker


Broker = Annotated[AsyncClient, Depends(the_broker)]


@app.post("/orders", status_code=202)
async def take_order(
    order: Order, broker: Broker, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, int]:
    """Answers when the order is on the disk; packing comes later. The customer's key is passed to the broker, so that a
    repeated request stores one order."""
    done = await broker.append("packing", [order.model_dump()], idempotency_key=idempotency_key)
    return {"order": done.first_seq}


@app.get("/packed")
async def what_is_packed() -> list[str]:
    return packed


@app.exception_handler(TopicsError)
async def broker_fails(request: Request, error: TopicsError) -> JSONResponse:
    """The client has retried already. The order may be stored or not: the same request with the same key is safe."""
    return JSONResponse({"detail": str(error)}, status_code=503, headers={"Retry-After": "5"})
