"""The figures of a set of cells as one, through its gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broker.gateway.overviews import merged, merged_history
from schemas import HistoryAnswer, OverviewAnswer
from schemas.overview import EXAMPLE
from tests.support.cells_in_process import cells, client_of


async def test_figures_of_all_cells_are_added(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        topics = sorted(made.topic(cell) for cell in range(3))
        for number, topic in enumerate(topics):
            await client.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}] * (number + 1)})
            assert (await client.put(f"/v0/topics/{topic}/consumers/c", json={})).status_code == 201
        found = OverviewAnswer.model_validate((await client.get("/v0/overview")).json())
        assert (found.topics, found.appended_records, found.consumers) == (3, 6, 3)
        assert (found.consumer_lag.value, found.consumer_lag.topic) == (3, topics[2])
        HistoryAnswer.model_validate((await client.get("/v0/overview/history")).json())
        names: list[str] = []
        query: dict[str, Any] = {"page_size": 2}
        while True:
            page = (await client.get("/v0/consumers", params=query)).json()
            names += [each["topic"] for each in page["consumers"]]
            if "next_cursor" not in page:
                break
            query["cursor"] = page["next_cursor"]
        assert names == topics
        async with client.stream("GET", "/v0/overview/stream") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    assert json.loads(line[6:])["topics"] == 3
                    break
        assert (await client.get("/v0/keys")).json()["required"] is False
        # The gateway serves the page itself: a cell that is down cannot hide it.
        assert (await client.get("/console")).headers["content-security-policy"].startswith("default-src 'none'")


def test_a_merge_takes_the_largest_value_where_a_sum_says_nothing() -> None:
    other = EXAMPLE | {
        "ready": False, "pressure": 0.5, "ready_jobs": 10, "disk_free_bytes": 1, "disk_bytes": 2,
        "resident_bytes": None,
        "busiest": [{"topic": "a", "appended_per_s": 60.0}, {"topic": "orders", "appended_per_s": 1.5}],
        "consumer_lag": {"value": 99, "topic": "x", "consumer": "y", "router": None},
    }  # fmt: skip
    found = merged([EXAMPLE, other])
    assert found["ready_jobs"] == EXAMPLE["ready_jobs"] + 10
    assert (found["pressure"], found["ready"]) == (0.5, False)
    assert (found["disk_free_bytes"], found["disk_bytes"]) == (1, 2)
    assert found["resident_bytes"] == EXAMPLE["resident_bytes"]
    assert found["consumer_lag"]["topic"] == "x"
    assert found["busiest"] == [{"topic": "orders", "appended_per_s": 120.0}, {"topic": "a", "appended_per_s": 60.0}]


def test_histories_of_different_lengths_are_added_from_their_ends() -> None:
    one = {"interval_ms": 1, "until_ts": 5, "series": {"acked_per_s": [1.0, 2.0, 3.0], "pressure": [0.1, 0.9, 0.2]}}
    other = {"interval_ms": 1, "until_ts": 6, "series": {"acked_per_s": [10.0], "pressure": [0.5]}}
    found = merged_history([one, other])
    assert found["series"] == {"acked_per_s": [1.0, 2.0, 13.0], "pressure": [0.1, 0.9, 0.5]}
    assert found["until_ts"] == 6
