"""Several nodes: each takes any request, and what goes to the cells of other nodes goes through relays."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from websockets.asyncio.client import connect

from broker.cells import PeerUnavailable
from broker.cluster import LinkTls, NodeCounts, Standing, Takeover, from_secret, write_node_counts
from broker.gateway.state import State
from tests.support.nodes_in_process import NodeInProcess, nodes
from topics_client import AsyncClient

SECRET = "the secret of a cluster in a test"
PATIENCE_S = 60


def client_of(node: NodeInProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=node.url, timeout=30)


def with_tls() -> list[LinkTls | None]:
    return [from_secret(SECRET) for _ in range(2)]


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.02)


async def write(client: httpx.AsyncClient, topic: str, *data: Any) -> None:
    done = await client.post(f"/v0/topics/{topic}", json={"records": [{"data": each} for each in data]})
    assert done.status_code == 200, done.text


async def read(client: httpx.AsyncClient, topic: str) -> list[Any]:
    answer = await client.post(f"/v0/topics/{topic}/diff", json={"from_seq": 0, "max_batch_bytes": 16 << 20})
    assert answer.status_code == 200, answer.text
    return [record["data"] for record in answer.json()["records"]]


@pytest.mark.parametrize("tls", ["tls", "plain"])
async def test_any_node_takes_any_request(tmp_path: Path, tls: str) -> None:
    async with nodes(tmp_path, 4, with_tls() if tls == "tls" else (None, None)) as made:
        for number, node in enumerate(made.nodes):
            async with client_of(node) as client:
                names = [made.topic(cell, number) for cell in range(4)]
                for cell, name in enumerate(names):
                    done = await client.put(f"/v0/topics/{name}", json={})
                    assert done.status_code == 201, done.text
                    await write(client, name, 1, 2)
                    assert await read(client, name) == [1, 2]
                    answer = await client.get(f"/v0/topics/{name}")
                    assert answer.headers["topics-cell"] == str(cell)
                large = ["x" * 1_000_000] * 3
                await write(client, names[1 - number], *large)
                assert (await read(client, names[1 - number]))[-3:] == large
                listed = [each["topic"] for each in (await client.get("/v0/topics")).json()["topics"]]
                assert set(names) <= set(listed)
                assert (await client.get("/v0/ready")).status_code == 200
        assert all(node.relays.relay.counts.failed == {} for node in made.nodes)


async def test_the_answers_name_nodes_owners_and_addresses(tmp_path: Path) -> None:
    async with nodes(tmp_path, 3, with_tls()) as made, client_of(made.nodes[1]) as client:
        await until(lambda: set(made.nodes[1].gateway.states) == {State.READY})
        found = (await client.get("/v0/cluster")).json()
        assert [(each["node"], each["generation"]) for each in found["cells"]] == [
            ("node-0", 1),
            ("node-1", 1),
            ("node-0", 1),
        ]
        for cell, each in enumerate(found["cells"]):
            owner = made.running[cell].owner(1)
            assert (each["http"], each["kafka"]) == (f"http://{owner.http}", str(owner.kafka))
            health = await client.get(f"{each['http']}/v0/health")
            assert (health.json()["set_id"], health.json()["cell"]) == (found["set_id"], cell)
        assert found["node"] == "node-1"
        assert [(each["node"], each["state"], each["cells"]) for each in found["nodes"]] == [
            ("node-0", "alive", [0, 2]),
            ("node-1", "alive", [1]),
        ]
        assert [each["http"] for each in found["nodes"]] == [str(node.http) for node in made.nodes]
        assert (await client.get("/v0/health")).json()["nodes"][0]["cells"] == [0, 2]
        await made.stop_cell(2)
        made.tell()
        found = (await client.get("/v0/cluster")).json()
        assert not {"node", "generation", "http", "kafka"} & found["cells"][2].keys()
        metrics = (await client.get("/v0/metrics")).text
        assert 'topics_cluster_links{cell="gateway",direction="out"}' in metrics
        assert 'topics_cluster_nodes{cell="gateway",state="alive"} 2' in metrics
        assert 'topics_cluster_cells_without_owner{cell="gateway"} 1' in metrics
        write_node_counts(made.nodes[1].run, NodeCounts(taken=3, given=2, lost={"fenced": 1}))
        metrics = (await client.get("/v0/metrics")).text
        for line in ("takeovers_total{C} 3", "handovers_total{C} 2", 'cells_lost_total{C,reason="fenced"} 1'):
            assert f"topics_cluster_{line}".replace("C}", 'cell="gateway"}').replace("C,", 'cell="gateway",') in metrics


async def test_each_cell_is_in_the_metrics_of_one_node(tmp_path: Path) -> None:
    def cells_in(text: str) -> list[str]:
        return re.findall(r'^topics_ready\{cell="(\w+)"\}', text, re.MULTILINE)

    async with nodes(tmp_path, 3) as made, client_of(made.nodes[0]) as first, client_of(made.nodes[1]) as second:
        assert cells_in((await first.get("/v0/metrics")).text) == ["0", "2", "gateway"]
        assert cells_in((await second.get("/v0/metrics")).text) == ["1", "gateway"]
        found = (await second.get("/v0/metrics", headers={"accept": "application/json"})).json()["metrics"]
        assert {sample["labels"]["cell"] for family in found for sample in family["samples"]} == {"1"}
        await made.move(1, 0)
        assert cells_in((await first.get("/v0/metrics")).text) == ["0", "1", "2", "gateway"]
        assert cells_in((await second.get("/v0/metrics")).text) == ["gateway"]


async def test_a_node_without_cells_also_needs_a_key_for_its_metrics(tmp_path: Path) -> None:
    async with nodes(tmp_path, 1, api_keys="k" * 32 + ":read") as made, client_of(made.nodes[1]) as client:
        assert (await client.get("/v0/metrics")).status_code == 401
        answer = await client.get("/v0/metrics", headers={"authorization": "Bearer " + "k" * 32})
        assert answer.status_code == 200
        assert "topics_cluster_nodes" in answer.text


async def test_a_cell_that_waits_or_recovers_says_so(tmp_path: Path) -> None:
    standing = Standing(nonce="00", state="recovering", since_ms=1_700_000_000_000, progress=0.25)
    async with nodes(tmp_path, 2) as made, client_of(made.nodes[0]) as client:
        made.tell(None, Takeover(node="node-0", standing=standing))
        for path in ("/v0/cluster", "/v0/health"):
            first, second = (await client.get(path)).json()["cells"]
            assert "takeover" not in first
            assert second["takeover"] == {
                "node": "node-0", "state": "recovering", "since_ms": 1_700_000_000_000, "progress": 0.25,
            }  # fmt: skip


async def test_the_state_of_a_cell_changes_with_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.gateway.status.LOOK_S", 3600.0)
    async with nodes(tmp_path, 2) as made:
        states = made.nodes[0].gateway.states
        await until(lambda: states == [State.READY, State.READY])
        await made.stop_cell(1)
        made.tell()
        await until(lambda: states == [State.READY, State.DOWN])
        await made.start_cell(1, 0)
        await until(lambda: states == [State.READY, State.READY])


async def test_a_node_stays_ready_while_a_cell_moves_but_not_without_any(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as made, client_of(made.nodes[0]) as client:
        await made.stop_cell(1)
        made.tell()
        # Not before all cells were ready once: a rolling upgrade waits for that.
        assert (await client.get("/v0/ready")).status_code == 503
        await made.start_cell(1, 1)
        made.tell()
        assert (await client.get("/v0/ready")).json() == {"status": "ready", "wal_replay_complete": True, "topics": 0}
        await made.stop_cell(1)
        made.tell()
        answer = await client.get("/v0/ready")
        assert (answer.status_code, answer.json()["wal_replay_complete"]) == (200, False)
        await made.stop_cell(0)
        made.tell()
        assert (await client.get("/v0/ready")).status_code == 503


async def test_a_request_for_a_cell_without_an_owner_has_done_nothing(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as made, client_of(made.nodes[0]) as client:
        topic = made.topic(1)
        await client.put(f"/v0/topics/{topic}", json={})
        await made.stop_cell(1)
        for told in (False, True):
            if told:
                made.tell()
            answer = await client.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}]})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (503, "not_ready")
            if told:
                assert error["detail"] == {"cell": 1, "outcome": "none"}
        await made.start_cell(1, 1)
        assert await read(client, topic) == []
        await write(client, topic, 1)
        assert await read(client, topic) == [1]


async def test_a_cell_moves_while_clients_write_at_both_nodes(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, with_tls()) as made:
        topic = made.topic(1)
        async with client_of(made.nodes[0]) as one, client_of(made.nodes[1]) as two:
            assert (await one.put(f"/v0/topics/{topic}", json={})).status_code == 201
            stop, acked = asyncio.Event(), list[str]()

            async def writer(client: httpx.AsyncClient, name: str) -> None:
                number = 0
                while not stop.is_set():
                    number += 1
                    key = f"{name}-{number}"
                    body = {"records": [{"data": key}], "idempotency_key": key}
                    while (done := await client.post(f"/v0/topics/{topic}", json=body)).status_code != 200:
                        assert done.status_code == 503, done.text
                        await asyncio.sleep(0.02)
                    acked.append(key)

            writers = [asyncio.create_task(writer(client, name)) for client, name in ((one, "a"), (two, "b"))]
            for node in (0, 1, 0):
                before = len(acked)
                await until(lambda before=before: len(acked) > before + 10)
                await made.move(1, node)
            before = len(acked)
            await until(lambda: len(acked) > before + 10)
            stop.set()
            await asyncio.gather(*writers)
            assert sorted(await read(one, topic)) == sorted(acked) == sorted(await read(two, topic))


async def test_a_stream_over_a_relay_delivers_and_ends_when_the_cell_moves(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, with_tls()) as made, client_of(made.nodes[0]) as client:
        names = [made.topic(0), made.topic(1)]
        for name in names:
            await client.put(f"/v0/topics/{name}", json={})
            await write(client, name, 1)
        session = {"topics": {name: {"from_seq": 0} for name in names}}

        async def events(most: int, last_id: str = "", moved: bool = False) -> tuple[list[tuple[str, int]], str, bool]:
            """Records until there are so many or the stream ends, the last id, and whether it ended."""
            wid = (await client.post("/v0/watch", json=session)).json()["wid"]
            seen: list[tuple[str, int]] = []
            headers = {"last-event-id": last_id} if last_id else {}
            async with client.stream("GET", f"/v0/watch/{wid}", headers=headers) as response:
                try:
                    async for line in response.aiter_lines():
                        name, _, value = line.partition(": ")
                        if name == "id":
                            last_id = value
                        elif name == "data" and "records" in (found := json.loads(value)):
                            seen += [(found["topic"], record["$seq"]) for record in found["records"]]
                        if not line and len(seen) >= most and last_id:
                            if not moved:
                                return seen, last_id, False
                            moved = False
                            most = 1000
                            moving.set()
                except httpx.RemoteProtocolError:
                    pass
            return seen, last_id, True

        moving = asyncio.Event()
        async with asyncio.timeout(PATIENCE_S):
            streaming = asyncio.create_task(events(2, moved=True))
            await moving.wait()
            await made.move(1, 0)
            seen, last_id, ended = await streaming
            assert (sorted(seen), ended) == (sorted((name, 1) for name in names), True)
            for name in names:
                await write(client, name, 2)
            seen, _, ended = await events(2, last_id)
            assert sorted(seen) == sorted((name, 2) for name in names)


async def test_a_websocket_reads_from_cells_of_two_nodes(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, with_tls()) as made, client_of(made.nodes[0]) as client:
        names = [made.topic(0), made.topic(1)]
        for name in names:
            await client.put(f"/v0/topics/{name}", json={})
            await write(client, name, 1)
        async with asyncio.timeout(PATIENCE_S), connect(made.nodes[0].url.replace("http", "ws") + "/v0/ws") as socket:
            for name in names:
                await socket.send(json.dumps({"op": "subscribe", "topic": name, "from_seq": 0}))
            seen: set[str] = set()
            while seen != set(names):
                message = json.loads(await socket.recv())
                if message.get("records"):
                    seen.add(message["topic"])


async def test_a_router_copies_between_nodes_also_after_its_source_has_moved(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, with_tls()) as made, client_of(made.nodes[0]) as client:
        source, dest = made.topic(1), made.topic(0)
        for topic in (source, dest):
            await client.put(f"/v0/topics/{topic}", json={})
        assert (await client.put("/v0/routers/r", json={"source": source, "dest": dest})).status_code == 201

        async def copied(*data: Any) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while await read(client, dest) != [*data]:
                    await asyncio.sleep(0.05)

        await write(client, source, 1)
        await copied(1)
        await made.move(1, 0)
        await write(client, source, 2)
        await copied(1, 2)
        await made.move(1, 1)
        await write(client, source, 3)
        await copied(1, 2, 3)


async def test_calls_between_cells_follow_a_cell_that_moves(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, with_tls()) as made:
        peers = made.running[0].cells.peers
        for node in (0, 1):
            assert await peers.call(1, "ready", None)
            await made.stop_cell(1)
            made.tell()
            with suppress(PeerUnavailable):  # its connection may be ending
                await peers.call(1, "ready", None)
            with pytest.raises(PeerUnavailable) as caught:
                await peers.call(1, "ready", None)
            assert caught.value.outcome == "none"
            await made.start_cell(1, node)
        assert await peers.call(1, "ready", None)


async def test_connections_to_an_old_process_at_this_node_end_when_another_node_owns_the_cell(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2) as made, client_of(made.nodes[0]) as client:
        topic = made.topic(0)
        await client.put(f"/v0/topics/{topic}", json={})
        upstream = made.nodes[0].gateway.upstreams[0]
        assert upstream.links
        old = made.running.pop(0)  # it goes on, as a process does that was stopped by a signal
        made.tell()
        assert upstream.links
        # The other node says that it owns the cell.
        made.running[0] = made.running[1]
        made.tell()
        await until(lambda: not upstream.links or made.nodes[0].relays.relay.counts.connected)
        del made.running[0]
        await old.stop()


def poll_all(consumer: Consumer, wanted: set[bytes]) -> None:
    """Return when the group has read all of these. A new coordinator knows no members: they join again, and may get
    records again that they have not committed."""
    deadline = time.monotonic() + PATIENCE_S
    while wanted:
        assert time.monotonic() < deadline, wanted
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            wanted.discard(message.value() or b"")


async def test_a_kafka_client_follows_a_leader_and_a_coordinator_that_move(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, with_tls()) as made, client_of(made.nodes[0]) as client:
        topic = made.topic(1)
        group = next(name for name in (f"g{number}" for number in range(100)) if made.home(name) == 1)
        assert (await client.put(f"/v0/topics/{topic}", json={})).status_code == 201
        bootstrap = ",".join(str(running.owner(1).kafka) for running in made.running.values())
        common = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 50,
        }
        producer = Producer({**common, "enable.idempotence": True, "retry.backoff.ms": 50})
        consumer = Consumer({**common, "group.id": group, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        try:
            sent: list[bytes] = []
            for node in (0, 1, None):
                for number in range(10):
                    sent.append(f"{node}-{number}".encode())
                    producer.produce(topic, sent[-1])
                assert await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
                await asyncio.to_thread(poll_all, consumer, set(sent[-10:]))
                if node is not None:
                    await made.move(1, node)
            assert await read(client, topic) != []
        finally:
            await asyncio.to_thread(consumer.close)


async def test_the_python_client_goes_to_the_owner_and_falls_back_to_the_gateway(tmp_path: Path) -> None:
    async with nodes(tmp_path, 2, with_tls()) as made, AsyncClient(made.nodes[0].url) as client:
        topic = made.topic(1)
        await client.put_topic(topic)
        for number in range(3):
            await client.append(topic, [number])
        metrics = made.running[1].broker.http_metrics
        assert metrics is not None
        await made.move(1, 0)
        for number in range(3, 6):
            await client.append(topic, [number])
        diff = await client.read(topic)
        assert [record.data for record in diff.records] == [*range(6)]
