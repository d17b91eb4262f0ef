"""The NATS client counts acknowledgements correctly however the bytes are cut, and ignores other messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from loadtest.generator import Load, NatsConnection, Task
from loadtest.scenario import Scenario, nats_publish

BATCH = 3
INFO = b'INFO {"server_id":"N","max_payload":1048576} \r\n'


class Wire:
    """Replaces a transport: records the bytes sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.is_closed = True


def acked(seq: int) -> bytes:
    payload = b'{"stream":"load-0","seq":%d}' % seq
    return b"MSG _INBOX.1 1 %d\r\n%b\r\n" % (len(payload), payload)


@pytest.fixture
def load() -> Load:
    load = Load(Task(scenario=Scenario(kind="nats", batch=BATCH), host="h", port=1))
    load.measuring = True
    return load


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def connection(load: Load, wire: Wire) -> Iterator[NatsConnection]:
    loop = asyncio.new_event_loop()

    async def connected() -> NatsConnection:
        made = NatsConnection(load, 0)
        made.connection_made(cast(asyncio.BaseTransport, wire))
        return made

    yield loop.run_until_complete(connected())
    loop.close()


def test_the_client_subscribes_and_sends_a_batch_at_once(connection: NatsConnection, wire: Wire) -> None:
    hello, messages = wire.sent
    inbox = hello.split(b"SUB ")[1].split(b" ")[0]
    assert messages.count(b"PUB load-0 " + inbox + b" 100\r\n") == BATCH


@pytest.mark.parametrize("step", [1, 2, 7, 40, 1000])
def test_the_next_batch_is_sent_after_all_acknowledgements(
    step: int, connection: NatsConnection, load: Load, wire: Wire
) -> None:
    said = INFO + acked(1) + b"PING\r\n" + acked(2) + INFO + acked(3)
    for at in range(0, len(said), step):
        assert load.requests == 0
        connection.data_received(said[at : at + step])
    assert load.requests == 1
    assert load.failed == {}
    assert wire.sent[2:] == [b"PONG\r\n", wire.sent[1]]
    connection.data_received(acked(4) + acked(5))
    assert load.requests == 1
    connection.data_received(acked(6))
    assert load.requests == 2


@pytest.mark.parametrize(
    "said",
    [
        b'MSG _INBOX.1 1 44\r\n{"error":{"code":503,"description":"x"},"seq":0}\r\n',
        b"HMSG _INBOX.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"-ERR 'Maximum Payload Violation'\r\n",
    ],
)
def test_a_refused_message_is_counted_as_failed(
    said: bytes, connection: NatsConnection, load: Load, wire: Wire
) -> None:
    connection.data_received(INFO + acked(1) + said)
    assert (load.requests, load.failed) == (0, {500: 1})
    assert wire.is_closed


def test_a_message_has_the_length_of_its_payload() -> None:
    assert nats_publish("a", "b", b"12345") == b"PUB a b 5\r\n12345\r\n"
