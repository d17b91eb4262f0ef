"""A client sent a claim while the broker was stopped, and left before it continued. The job was charged a delivery.

With `leases_durable: false` a claim is answered at once, before the end of its connection is read, although the kernel
knows of it. At `max_deliveries` the job went to the dead letter topic without ever reaching a live worker.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

TRIES = 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("still")) as process:
        process.start()
        yield process


def claim(broker: BrokerProcess, queue: str, *headers: bytes) -> bytes:
    body = json.dumps({"node": "gone"}).encode()
    lines = [
        f"POST /v0/topics/{queue}/claim HTTP/1.1".encode(),
        b"host: localhost",
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join([*lines, b"", body])


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port))


def leaves(broker: BrokerProcess, queue: str, *headers: bytes) -> None:
    """Send a request on a new connection, and leave."""
    with connect(broker) as wire:
        wire.sendall(claim(broker, queue, *headers))


def leaves_the_common_way(broker: BrokerProcess, queue: str) -> None:
    leaves(broker, queue, b"content-encoding: identity")


def resets(broker: BrokerProcess, queue: str) -> None:
    with connect(broker) as wire:
        wire.sendall(claim(broker, queue))
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("leave", [leaves, leaves_the_common_way, resets])
def test_a_claim_of_a_disconnected_client_counts_no_delivery(
    broker: BrokerProcess, leave: Callable[[BrokerProcess, str], None], durable: bool, tmp_path: Path
) -> None:
    queue = f"{leave.__name__}-{durable}"
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": f"{queue}-dead", "leases_durable": durable}
    assert broker.call("PUT", f"/v0/topics/{queue}", config)[0] == 201
    for number in range(TRIES):
        broker.call("POST", f"/v0/topics/{queue}", {"records": [{"data": number}]})
        broker.signal(signal.SIGSTOP)
        try:
            leave(broker, queue)
        finally:
            broker.signal(signal.SIGCONT)
        broker.until(lambda: broker.call("GET", f"/v0/topics/{queue}")[1]["queue"]["in_flight"] == 0)
        status, found = broker.call("POST", f"/v0/topics/{queue}/claim", {"node": "w"})
        assert (status, [job["data"] for job in found["claimed"]]) == (200, [number])
        seqs = [job["$seq"] for job in found["claimed"]]
        assert broker.call("POST", f"/v0/topics/{queue}/ack", {"node": "w", "seqs": seqs})[1]["acked"] == 1
    figures = broker.call("GET", f"/v0/topics/{queue}")[1]["queue"]
    assert (figures["dead_lettered"], figures["dead_pending"]) == (0, 0)
