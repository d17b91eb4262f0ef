"""Cells with ports of their own for HTTP clients."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.cells import home_cell
from tests.support.broker_process import PATIENCE_S, BrokerProcess
from tests.support.certificate import certificate

CELLS = 2
KEY = "k" * 32


def _topic_of(cell: int) -> str:
    return next(name for number in range(99) if home_cell(name := f"orders-{number}", CELLS) == cell)


def test_each_cell_serves_its_topics_at_its_own_port_which_outlives_a_killed_process(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, cells=CELLS, wal_shards=1, cell_ports=0, kafka_port=0) as broker:
        broker.start()
        found = broker.ok("GET", "/v0/cluster")
        health = broker.ok("GET", "/v0/health")
        assert (found["home_cells"], found["set_id"]) == (CELLS, health["set_id"])
        urls = [cell["http"] for cell in found["cells"]]
        assert len(set(urls)) == CELLS
        assert all(url.startswith("http://127.0.0.1:") for url in urls)
        assert all(cell["kafka"].startswith("127.0.0.1:") for cell in found["cells"])
        for cell, url in enumerate(urls):
            body = {"records": [{"data": cell}]}
            own = httpx.get(f"{url}/v0/health", timeout=PATIENCE_S).json()
            assert (own["set_id"], own["cell"]) == (found["set_id"], cell)
            done = httpx.post(f"{url}/v0/topics/{_topic_of(cell)}", json=body, timeout=PATIENCE_S)
            assert (done.status_code, done.headers["topics-cell"]) == (201, str(cell))
            other = httpx.post(f"{url}/v0/topics/{_topic_of(1 - cell)}", json=body, timeout=PATIENCE_S)
            assert (other.status_code, other.json()["error"]["detail"]["cell"]) == (421, 1 - cell)
        router = {"source": _topic_of(1), "dest": _topic_of(1) + ".copy"}
        assert httpx.put(f"{urls[1]}/v0/routers/copies", json=router, timeout=PATIENCE_S).status_code == 421
        broker.kill_cell(1)
        # The port has stayed open, so the request waits for the next process instead of being refused.
        broker.until(lambda: httpx.get(f"{urls[1]}/v0/ready", timeout=PATIENCE_S).status_code == 200)
        read = httpx.post(f"{urls[1]}/v0/topics/{_topic_of(1)}/diff", json={"from_seq": 0}, timeout=PATIENCE_S).json()
        assert [record["data"] for record in read["records"]] == [1]
        assert broker.ok("GET", "/v0/cluster")["cells"][1]["http"] == urls[1]
        assert broker.stop() == 0


def test_the_ports_of_cells_have_the_keys_and_the_certificate_of_the_public_port(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    given: dict[str, Any] = {"tls_cert": cert, "tls_key": key, "api_keys": KEY}
    with BrokerProcess(tmp_path, cells=CELLS, wal_shards=1, cell_ports=0, **given) as broker:
        broker.launch()
        broker.wait_listening()
        allowed = {"authorization": f"Bearer {KEY}"}
        with httpx.Client(verify=ssl.create_default_context(cafile=cert), timeout=PATIENCE_S) as client:
            base = f"https://127.0.0.1:{broker.port}"
            broker.until(lambda: client.get(f"{base}/v0/ready").status_code == 200)
            assert client.get(f"{base}/v0/cluster").status_code == 401
            urls = [cell["http"] for cell in client.get(f"{base}/v0/cluster", headers=allowed).json()["cells"]]
            assert all(url.startswith("https://127.0.0.1:") for url in urls)
            for cell, url in enumerate(urls):
                target = f"{url}/v0/topics/{_topic_of(cell)}"
                assert client.put(target, json={}).status_code == 401
                assert client.put(target, json={}, headers=allowed).status_code == 201
                with pytest.raises(httpx.HTTPError):
                    httpx.put(target.replace("https", "http"), json={}, headers=allowed)
        assert broker.stop() == 0


def test_a_port_in_use_is_reported_with_its_setting(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, cells=CELLS, wal_shards=1, cell_ports=0) as broker:
        broker.start()
        port = httpx.URL(broker.ok("GET", "/v0/cluster")["cells"][0]["http"]).port
        (tmp_path / "other").mkdir()
        with BrokerProcess(tmp_path / "other", cells=CELLS, cell_ports=port) as other:
            other.launch()
            assert other.wait() == 1
            assert "TOPICS_CELL_PORTS" in other.log()
