"""A broker in which everything has been used that a metric counts."""

from __future__ import annotations

import httpx

from broker.wiring import Broker
from tests.http.calls import append
from tests.http.consumer_calls import put
from tests.http.queue_calls import queue


async def use_everything(client: httpx.AsyncClient, broker: Broker) -> None:
    """Afterwards every metric with labels has a value; metrics of keys only if the broker has keys.

    The broker may have at most one watch session.
    """
    await append(client, "t", {"data": 1})
    await client.put("/v0/topics/small", json={"cap_records": 1})
    await append(client, "small", {"data": 1})
    await append(client, "small", {"data": 2})
    await client.post("/v0/topics/small/diff", json={})
    await queue(client, 1, name="jobs")
    await client.post("/v0/topics/jobs/claim", json={"node": "w"})
    await client.put("/v0/routers/r", json={"source": "t", "dest": "copies"})
    await put(client)
    for _ in range(2):  # the second is one too many
        await client.post("/v0/watch", json={"topics": {"t": {}}})
    broker.http_metrics.client_gone("/v0/topics/{topic}/diff")
