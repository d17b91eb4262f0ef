"""Dead letter topics of a set, through its gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.cells_in_process import cells, client_of

PATIENCE_S = 60


@pytest.mark.parametrize("there", [False, True])
async def test_a_missing_dead_letter_topic_is_created_beside_its_queue_and_jobs_come_back_from_there(
    tmp_path: Path, there: bool
) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        jobs, dead = made.topic(1), made.topic(2)
        if there:
            await client.put(f"/v0/topics/{dead}", json={})
        queue = {"type": "queue", "dead_letter": dead, "max_deliveries": 1}
        assert (await client.put(f"/v0/topics/{jobs}", json=queue)).status_code == 201
        await client.post(f"/v0/topics/{jobs}", json={"records": [{"data": 1}]})
        claimed = (await client.post(f"/v0/topics/{jobs}/claim", json={"node": "w"})).json()
        seqs = [job["$seq"] for job in claimed["claimed"]]
        done = await client.post(f"/v0/topics/{jobs}/nack", json={"node": "w", "seqs": seqs})
        assert done.status_code == 200, done.text
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await client.post(f"/v0/topics/{dead}/diff", json={"from_seq": 0})
                if found.status_code == 200 and found.json()["records"]:
                    break
                await asyncio.sleep(0.02)
        assert [record["data"] for record in found.json()["records"]] == [1]
        assert dead in made.brokers[2 if there else 1].engine.catalog.topics
        redriven = await client.post(f"/v0/topics/{jobs}/redrive", json={})
        assert redriven.json()["moved"] == 1, redriven.text
        again = (await client.post(f"/v0/topics/{jobs}/claim", json={"node": "w"})).json()
        assert [job["data"] for job in again["claimed"]] == [1]
