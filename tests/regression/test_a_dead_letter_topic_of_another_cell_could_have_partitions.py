"""A queue could name a topic of another cell with several partitions as its dead letter topic, and such a topic could
get several partitions. One process refuses both."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.cells_in_process import cells, client_of


def refused(answer: httpx.Response, field: str) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["detail"]["field"]) == (409, "topic_exists_incompatible", field)


async def test_both_are_refused(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        jobs, others, dead, wide = made.topic(0), made.topic(0, 1), made.topic(1), made.topic(2)
        await client.put(f"/v0/topics/{wide}", json={"partitions": 2})
        to_wide = {"type": "queue", "dead_letter": wide}
        refused(await client.put(f"/v0/topics/{jobs}", json=to_wide), "dead_letter")
        sent = await client.post(f"/v0/topics/{jobs}", json={"records": [{"data": 1}], "config": to_wide})
        refused(sent, "dead_letter")
        assert (await client.get(f"/v0/topics/{jobs}")).status_code == 404
        assert (await client.put(f"/v0/topics/{jobs}", json={"type": "queue"})).status_code == 201
        refused(await client.patch(f"/v0/topics/{jobs}", json={"dead_letter": wide}), "dead_letter")
        assert (await client.patch(f"/v0/topics/{jobs}", json={"dead_letter": dead})).status_code == 200
        refused(await client.put(f"/v0/topics/{dead}", json={"partitions": 2}), "partitions")
        assert (await client.put(f"/v0/topics/{dead}", json={})).status_code == 201
        refused(await client.patch(f"/v0/topics/{dead}", json={"partitions": 2}), "partitions")
        assert (await client.patch(f"/v0/topics/{jobs}", json={"dead_letter": None})).status_code == 200
        assert (await client.patch(f"/v0/topics/{dead}", json={"partitions": 2})).status_code == 200
        config = {"type": "queue", "dead_letter": made.topic(1, 1)}
        sent = await client.post(f"/v0/topics/{others}", json={"records": [{"data": 1}], "config": config})
        assert sent.status_code == 201
        assert (await client.get(f"/v0/topics/{others}")).json()["config"]["dead_letter"] == made.topic(1, 1)
