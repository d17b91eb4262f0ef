"""Brokers as neighbours, a broker and its successor, and clients that use HTTP/2 with prior knowledge."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded

from tests.support.broker_process import BrokerProcess

#: Shorter than the server's patience with a connection: without an answer by then, there is none.
ANSWER_S = 15


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        yield process


def test_two_brokers_on_a_machine_are_independent(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with BrokerProcess(tmp_path / "other") as other:
        for each in (broker, other):
            each.launch()
        for each in (broker, other):
            each.wait_listening()
            each.wait_ready()
        assert broker.port != other.port
        broker.ok("POST", "/v0/topics/mine", {"records": [{"data": 1}]})
        other.ok("POST", "/v0/topics/yours", {"records": [{"data": 2}]})
        assert [entry["topic"] for entry in broker.ok("GET", "/v0/topics")["topics"]] == ["mine"]
        assert [entry["topic"] for entry in other.ok("GET", "/v0/topics")["topics"]] == ["yours"]
        assert cluster_id(broker) != cluster_id(other)
        broker.kill()
        assert other.ok("POST", "/v0/topics/yours", {"records": [{"data": 3}]})["first_seq"] == 2


def test_cluster_id_and_epochs_survive_restarts(broker: BrokerProcess) -> None:
    broker.start()
    broker.ok("PUT", "/v0/topics/orders", {"durability": "fsync"})
    cluster, epoch = cluster_id(broker), broker.ok("GET", "/v0/topics/orders")["epoch"]
    broker.kill()
    broker.start()
    assert (cluster_id(broker), broker.ok("GET", "/v0/topics/orders")["epoch"]) == (cluster, epoch)
    assert broker.stop() == 0
    broker.start()
    assert (cluster_id(broker), broker.ok("GET", "/v0/topics/orders")["epoch"]) == (cluster, epoch)


def cluster_id(broker: BrokerProcess) -> str:
    found = broker.ok("GET", "/v0/health")["cluster_id"]
    assert found
    return found


def test_http_2_serves_requests_with_a_body_and_without(broker: BrokerProcess) -> None:
    """Also a request that ends with its headers, like curl's POST or PUT without a body."""
    broker.start()
    with Http2(broker.port) as client:
        assert client.call("PUT", "/v0/topics/orders")[0] == 201
        assert client.call("POST", "/v0/topics/orders", {"records": [{"data": 1}]})[0] == 200
        status, answer = client.call("POST", "/v0/topics/orders/diff")
        assert status == 200
        assert [record["data"] for record in answer["records"]] == [1]
        assert client.call("GET", "/v0/topics/orders")[1]["head_seq"] == 1


class Http2:
    """HTTP/2 with prior knowledge over a plain connection, one stream after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self._connection = H2Connection(H2Configuration(client_side=True, header_encoding="ascii"))
        self._connection.initiate_connection()

    def __enter__(self) -> Http2:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        stream = self._connection.get_next_available_stream_id()
        headers = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
        if body is not None:
            headers.append(("content-type", "application/json"))
        self._connection.send_headers(stream, headers, end_stream=body is None)
        if body is not None:
            self._connection.send_data(stream, json.dumps(body).encode(), end_stream=True)
        return self._answer()

    def _answer(self) -> tuple[int, Any]:
        status, text = 0, b""
        for event in self._events():
            if isinstance(event, ResponseReceived):
                status = int(dict(event.headers)[":status"])
            elif isinstance(event, DataReceived):
                text += event.data
                self._connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamEnded):
                break
        return status, json.loads(text)

    def _events(self) -> Iterator[Event]:
        while True:
            self._socket.sendall(self._connection.data_to_send())
            received = self._socket.recv(65_536)
            assert received, "the broker hung up"
            yield from self._connection.receive_data(received)
