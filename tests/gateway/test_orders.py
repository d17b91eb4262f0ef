"""Operators order cells to nodes, at any gateway. (That nodes follow: tests/process/test_cluster_orders.py.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from broker.cluster import Plan, newest, write_owners
from broker.gateway import GatewayApp
from storage.bucket import Driver, Unanswered, found, parse_location, read_cluster
from storage.errors import UnsupportedFormat
from storage.platform import SystemClock
from tests.support.memory_bucket import MemoryBucket
from tests.support.nodes_in_process import NodeInProcess, NodesInProcess, nodes


def client_of(node: NodeInProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=node.url, timeout=30)


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    return answer.json()["error"]["message"]


async def test_orders_are_plans_in_the_bucket_and_shown_at_every_node(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as made, client_of(made.nodes[0]) as one, client_of(made.nodes[1]) as two:
        moved = await one.put("/v0/cluster/cells/1/node", json={"node": "node-0"})
        assert (moved.status_code, moved.json()) == (
            200,
            {"plan": 1, "cells": [{"cell": 1, "node": "node-0"}], "drained": []},
        )
        drained = await two.put("/v0/cluster/nodes/node-1/drain")
        assert drained.json() == {"plan": 2, "cells": [{"cell": 1, "node": "node-0"}], "drained": ["node-1"]}
        assert newest(made.store, Plan()) == Plan(number=2, cells={1: "node-0"}, drained=("node-1",))
        made.tell()
        for client in (one, two):
            found: Any = (await client.get("/v0/cluster")).json()
            assert found["plan"] == 2
            assert [cell.get("wanted") for cell in found["cells"]] == [None, "node-0"]
            assert [node.get("drain") for node in found["nodes"]] == [None, True]
        assert (await two.delete("/v0/cluster/cells/1/node")).json()["cells"] == []
        assert (await one.delete("/v0/cluster/nodes/node-1/drain")).json() == {"plan": 4, "cells": [], "drained": []}


async def test_what_no_node_can_follow_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as made, client_of(made.nodes[0]) as client:

        async def move(cell: str, body: object) -> str:
            return refused(await client.put(f"/v0/cluster/cells/{cell}/node", json=body), 400, "invalid_request")

        assert "from 0 to 1" in await move("2", {"node": "node-0"})
        assert "from 0 to 1" in await move("one", {"node": "node-0"})
        assert "The nodes are node-0, node-1." in await move("0", {"node": "nobody"})
        assert "node" in await move("0", {})
        assert "when" in await move("0", {"node": "node-0", "when": "later"})
        unknown = await client.put("/v0/cluster/nodes/nobody/drain")
        assert "no node of that name" in refused(unknown, 400, "invalid_request")
        assert made.store.objects == {}
        assert (await client.put("/v0/cluster/nodes/node-1/drain")).status_code == 200
        assert "is drained" in await move("0", {"node": "node-1"})
        last = await client.put("/v0/cluster/nodes/node-0/drain")
        assert "No other node than node-0 takes cells" in refused(last, 400, "invalid_request")


KEYS = "a" * 32, "s" * 32, "d" * 32
ROWS = f"{KEYS[0]}:admin,{KEYS[1]}:admin:orders,{KEYS[2]}:read"


@pytest.mark.parametrize(("key", "status"), [(KEYS[0], 200), (KEYS[1], 403), (KEYS[2], 403), ("", 401)])
async def test_orders_need_a_key_with_admin_for_all_topics(tmp_path: Path, key: str, status: int) -> None:
    async with nodes(tmp_path, 1, api_keys=ROWS) as made, client_of(made.nodes[0]) as client:
        client.headers.update({"Authorization": f"Bearer {key}"} if key else {})
        for method, path, body in (
            ("PUT", "/v0/cluster/cells/0/node", {"node": "node-0"}),
            ("DELETE", "/v0/cluster/cells/0/node", None),
            ("PUT", "/v0/cluster/nodes/node-1/drain", None),
            ("DELETE", "/v0/cluster/nodes/node-1/drain", None),
        ):
            assert (await client.request(method, path, json=body if key else None)).status_code == status, (
                method,
                path,
            )


async def test_an_order_that_the_bucket_does_not_answer_has_an_unknown_outcome(tmp_path: Path) -> None:
    class Silent(MemoryBucket):
        def get(self, key: str) -> bytes | None:
            raise Unanswered

    made = NodesInProcess(tmp_path, 1, (None, None))
    made.nodes[0].app = GatewayApp(made.nodes[0].gateway, Silent)
    await made.start()
    try:
        async with client_of(made.nodes[0]) as client:
            answer = await client.put("/v0/cluster/cells/0/node", json={"node": "node-1"})
            refused(answer, 503, "not_ready")
            assert answer.json()["error"]["detail"]["outcome"] == "unknown"
    finally:
        await made.stop()


async def test_a_set_without_a_bucket_has_no_other_node(tmp_path: Path) -> None:
    made = NodesInProcess(tmp_path, 1, (None,))
    made.nodes[0].app = GatewayApp(made.nodes[0].gateway)
    await made.start()
    try:
        async with client_of(made.nodes[0]) as client:
            answer = await client.put("/v0/cluster/nodes/node-0/drain")
            assert "not a node of a cluster" in refused(answer, 400, "invalid_request")
    finally:
        await made.stop()


URL = "s3://bucket/one"
LOCATION = parse_location(URL)


async def test_a_format_is_begun_when_all_nodes_read_it_and_older_programs_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes(tmp_path, 1, cluster_url=URL) as made, client_of(made.nodes[0]) as client:
        driver = Driver(made.store, SystemClock())
        with monkeypatch.context() as before:
            before.setattr("storage.bucket.cluster.FORMATS", (1,))
            first = driver.run(found(LOCATION, "a" * 32, 1))
        assert first.format == 1
        told = refused(await client.post("/v0/cluster/finalize"), 400, "invalid_request")
        assert "Not all nodes read format 2: node-0, node-1" in told
        assert driver.run(read_cluster(LOCATION)) == first, "going back works"
        known = made.nodes[0].gateway.cluster
        assert known is not None
        shown = known.read()
        assert shown is not None
        read = tuple(msgspec.structs.replace(each, formats=(1, 2)) for each in shown.nodes)
        write_owners(made.nodes[0].run, msgspec.structs.replace(shown, nodes=(read[0], shown.nodes[1])))
        assert "format 2: node-1." in refused(await client.post("/v0/cluster/finalize"), 400, "invalid_request")
        write_owners(made.nodes[0].run, msgspec.structs.replace(shown, nodes=read))
        for _ in range(2):
            answer = await client.post("/v0/cluster/finalize")
            assert (answer.status_code, answer.json()) == (200, {"format": 2, "revision": 1})
        second = driver.run(read_cluster(LOCATION))
        assert (second.format, second.cluster_id, second.cells) == (2, first.cluster_id, first.cells)
        monkeypatch.setattr("storage.bucket.cluster.FORMATS", (1,))
        with pytest.raises(UnsupportedFormat, match=r"cluster.1 has format 2; this program knows 1"):
            driver.run(read_cluster(LOCATION))
        driver.close()
