"""Requests for one topic, through a gateway to the cell that has it."""

from __future__ import annotations

from pathlib import Path

from tests.support.cells_in_process import cells, client_of


async def test_a_topic_is_created_written_and_read_in_its_home_cell(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        for cell in range(3):
            topic = made.topic(cell)
            assert (await client.put(f"/v0/topics/{topic}", json={})).status_code == 201
            for number in range(3):
                done = await client.post(f"/v0/topics/{topic}", json={"records": [{"data": number}]})
                assert done.json()["seqs"] == [number + 1] if "seqs" in done.json() else done.status_code == 200
            read = await client.post(f"/v0/topics/{topic}/diff", json={"from_seq": 0})
            assert [record["data"] for record in read.json()["records"]] == [0, 1, 2]
            assert topic in made.brokers[cell].engine.catalog.topics
            assert all(topic not in made.brokers[other].engine.catalog.topics for other in range(3) if other != cell)


async def test_a_large_body_and_a_large_answer_go_through_in_pieces(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        topic = made.topic(1)
        await client.put(f"/v0/topics/{topic}", json={})
        large = "x" * 1_000_000
        done = await client.post(f"/v0/topics/{topic}", json={"records": [{"data": large}] * 3})
        assert done.status_code == 200, done.text
        read = await client.post(f"/v0/topics/{topic}/diff", json={"from_seq": 0, "max_batch_bytes": 8 << 20})
        assert [record["data"] == large for record in read.json()["records"]] == [True] * 3
        read = await client.get(f"/v0/topics/{topic}/records/1")
        assert read.json()["data"] == large


async def test_lists_of_all_cells_are_merged_page_by_page(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        names = sorted(made.topic(cell, number) for cell in range(3) for number in range(4))
        for name in names:
            await client.put(f"/v0/topics/{name}", json={})
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = (
                await client.get("/v0/topics", params={"page_size": 5, **({"cursor": cursor} if cursor else {})})
            ).json()
            found += [each["topic"] for each in page["topics"]]
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        assert found == names
        assert (await client.get("/v0/topics", params={"cursor": "nonsense"})).status_code == 400
        assert (await client.get("/topics")).json() == names


async def test_a_cell_is_ready_when_other_cells_can_call_it(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        assert (await client.get("/v0/ready")).status_code == 200
        assert made.brokers[1].cells is not None
        await made.brokers[1].cells.stop()
        answer = await client.get("/v0/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")


async def test_status_covers_all_cells(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        made.gateway.restarts = {"cell-01": 2, "gateway-00": 1}
        assert (await client.get("/v0/ready")).json()["status"] == "ready"
        assert (await client.get("/v0/health")).json()["status"] == "ok"
        text = (await client.get("/v0/metrics")).text
        assert 'topics_ready{cell="0"} 1' in text
        assert 'topics_ready{cell="2"} 1' in text
        assert text.count("# TYPE topics_ready ") == 1
        assert 'topics_http_requests_total{cell="gateway",route="/v0/health"' in text
        assert 'topics_process_restarts_total{cell="gateway",process="cell-01"} 2' in text
        found = (await client.get("/v0/metrics", headers={"accept": "application/json"})).json()
        ready = next(each for each in found["metrics"] if each["name"] == "topics_ready")
        assert [sample["labels"]["cell"] for sample in ready["samples"]] == ["0", "1", "2"]
        found = (await client.get("/v0/cluster")).json()
        assert (found["set_id"], found["home_cells"]) == ("set-1", 3)
        assert [cell["restarts"] for cell in found["cells"]] == [0, 2, 0]
        assert found["gateways"] == [{"gateway": 0, "restarts": 1}]
        assert "http" not in found["cells"][0]
        health = (await client.get("/v0/health")).json()
        assert (health["set_id"], health["gateways"]) == ("set-1", found["gateways"])
        assert (await client.get("/docs")).status_code == 200
        assert (await client.get("/openapi.json")).json()["openapi"]
        assert (await client.get("/v0/nothing")).status_code == 404
        assert (await client.head(f"/v0/topics/{made.topic(0)}")).status_code == 404
