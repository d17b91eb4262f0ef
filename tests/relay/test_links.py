"""Who may connect to the cluster port: nodes with the secret of the cluster, or with a certificate of its authority.
Nothing that anybody else sends is read, and they bind only so much."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.cells import Kind, Wanted, line_of
from broker.cluster import LinkError, LinkTls, from_files, from_secret
from broker.cluster.link import LIFETIME, RENEW_S
from broker.relay import Relay
from broker.relay import relay as limits
from broker.relay.pipe import END
from broker.settings import is_loopback
from tests.support.relays import SET_ID, RelayNode, running

SECRET = "the secret of a cluster in a test"
OTHER = "the secret of another cluster in a test"
LINE = line_of(Wanted(0, Kind.HTTP, SET_ID))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


async def talk(one: LinkTls, two: LinkTls) -> bool:
    """Whether a node with the first certificate reaches a cell of a node with the second. Checks the counts."""
    a, b = RelayNode("one", one), RelayNode("two", two)
    a.knows(b.owner())
    async with running(a, b):
        await b.serve(0, echo)
        try:
            reader, writer = await a.connect(0)
        except OSError:
            # If the node that connects is at fault, only the other one knows.
            await until(lambda: b.relay.counts.refused or a.relay.counts.failed.get("handshake"))
            assert b.relay.counts.accepted == 0
            assert b.relay.counts.received_bytes == 0
            return False
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        return True


async def test_nodes_with_the_same_secret_connect() -> None:
    assert await talk(from_secret(SECRET), from_secret(SECRET))


async def test_another_secret_is_refused_in_both_directions() -> None:
    with capture_logs() as logs:
        assert not await talk(from_secret(OTHER), from_secret(SECRET))
        assert not await talk(from_secret(SECRET), from_secret(OTHER))
    assert "link_failed" in {each["event"] for each in logs}
    assert not any(secret in str(logs) for secret in (SECRET, OTHER))


async def test_a_client_that_does_not_check_the_server_is_refused_without_the_secret() -> None:
    careless = from_secret(OTHER)
    careless.client.verify_mode = ssl.CERT_NONE
    assert not await talk(careless, from_secret(SECRET))


@pytest.mark.parametrize("old", ["client", "server"])
async def test_an_expired_certificate_is_refused(old: str) -> None:
    good, bad = from_secret(SECRET), from_secret(SECRET, now=lambda: datetime.now(UTC) - 2 * LIFETIME)
    if old == "client":
        assert not await talk(bad, good)
    else:
        assert not await talk(good, bad)


async def test_a_certificate_of_the_future_is_refused() -> None:
    assert not await talk(from_secret(SECRET, now=lambda: datetime.now(UTC) + timedelta(hours=1)), from_secret(SECRET))


async def test_clocks_may_differ_by_a_minute() -> None:
    assert await talk(from_secret(SECRET, now=lambda: datetime.now(UTC) + timedelta(minutes=1)), from_secret(SECRET))


async def test_a_certificate_is_renewed_long_before_it_expires() -> None:
    now = [datetime.now(UTC) - 2 * LIFETIME]
    tls = from_secret(SECRET, now=lambda: now[0])
    now[0] = datetime.now(UTC)
    tls.renew()
    assert await talk(tls, from_secret(SECRET))
    assert await talk(from_secret(SECRET), tls)
    assert timedelta(seconds=RENEW_S) < LIFETIME / 10


def test_a_short_secret_is_refused_and_not_shown() -> None:
    with pytest.raises(LinkError, match="32") as caught:
        from_secret("geheim" * 5)
    assert "geheim" not in str(caught.value)


class Stranger:
    """A connection to a cluster port of somebody who is no node."""

    def __init__(self, node: RelayNode, tls: ssl.SSLContext | None = None) -> None:
        self._node = node
        self._tls = tls

    async def answer(self, sent: bytes) -> bytes:
        """What comes back for these bytes until the connection ends."""
        address = self._node.address
        given: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls, "server_hostname": "node"}
        found = b""
        async with asyncio.timeout(20):
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(address.host, address.port, **given)
                try:
                    writer.write(sent)
                    while data := await reader.read(1 << 16):
                        found += data
                finally:
                    writer.transport.abort()
                    writer.close()
        return found


async def test_a_client_without_a_certificate_is_refused() -> None:
    node = RelayNode("one", from_secret(SECRET))
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    async with running(node):
        await node.serve(0, echo)
        with capture_logs() as logs:
            assert await Stranger(node, bare).answer(LINE) == b""
            await until(lambda: node.relay.counts.refused == {"handshake": 1})
        assert node.relay.counts.received_bytes == 0
    assert [each["event"] for each in logs] == ["link_refused"]
    assert "CERTIFICATE" in logs[0]["error"].upper()


async def test_tls_1_2_is_refused() -> None:
    node, old = RelayNode("one", from_secret(SECRET)), from_secret(SECRET)
    old.client.minimum_version = old.client.maximum_version = ssl.TLSVersion.TLSv1_2
    async with running(node):
        assert await Stranger(node, old.client).answer(LINE) == b""
        await until(lambda: node.relay.counts.refused == {"handshake": 1})


@pytest.mark.parametrize(
    "sent", [b"GET /v0/health HTTP/1.1\r\nhost: x\r\n\r\n", LINE, b"\x16\x03\x01\xff\xff" + b"x" * 100]
)
async def test_a_client_that_does_not_speak_tls_is_refused(sent: bytes) -> None:
    node = RelayNode("one", from_secret(SECRET), handshake_s=0.5)
    async with running(node):
        await node.serve(0, echo)
        with capture_logs() as logs:
            answer = await Stranger(node).answer(sent)
            await until(lambda: node.relay.counts.refused)
        assert b"HTTP" not in answer
        assert b"+" not in answer
        assert (node.relay.counts.accepted, node.relay.counts.received_bytes) == (0, 0)
    assert [each["event"] for each in logs] == ["link_refused"]


async def test_a_plain_port_refuses_what_is_no_first_line() -> None:
    node = RelayNode("one")
    async with running(node):
        await node.serve(0, echo)
        for sent in (b"GET /v0/health HTTP/1.1\r\nhost: x\r\n\r\n", b"x" * 1000, LINE + b"more"):
            assert await Stranger(node).answer(sent) == b""
        await until(lambda: node.relay.counts.refused == {"first_line": 3})


async def test_a_process_that_gives_up_before_it_is_connected_is_no_stranger() -> None:
    """Its node sends that it has closed its side, which may arrive with the first line."""
    node = RelayNode("one")
    async with running(node):
        await node.serve(0, echo)
        assert await Stranger(node).answer(LINE + END) == b""
        assert node.relay.counts.refused == {}
        await until(lambda: node.relay.counts.incoming == 0)


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01"])
async def test_a_handshake_that_takes_too_long_is_cut(first: bytes) -> None:
    node = RelayNode("one", from_secret(SECRET), handshake_s=0.3)
    async with running(node):
        assert await Stranger(node).answer(first) == b""


async def test_a_node_that_sends_no_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINE_S", 0.2)
    node = RelayNode("one", from_secret(SECRET))
    async with running(node):
        assert await Stranger(node, from_secret(SECRET).client).answer(b"") == b""
        assert node.relay.counts.refused == {"first_line": 1}
        assert node.relay.counts.incoming == 0


async def test_strangers_bind_a_bounded_number_of_connections_and_keep_no_node_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_SILENT", 8)
    monkeypatch.setattr(limits, "MAX_HANDSHAKES", 4)
    tls = from_secret(SECRET)
    one, two = RelayNode("one", tls), RelayNode("two", from_secret(SECRET))
    one.knows(two.owner())
    async with running(one, two):
        await two.serve(0, echo)
        strangers = [await asyncio.open_connection(two.address.host, two.address.port) for _ in range(30)]
        for _, writer in strangers[:15]:
            writer.write(b"\x16\x03\x01")
        ended = [asyncio.create_task(reader.read(1)) for reader, _ in strangers]
        await until(lambda: sum(each.done() for each in ended) >= 30 - 8 - 4)
        reader, mine = await one.connect(0)
        mine.write(b"x")
        assert await reader.readexactly(1) == b"x"
        for _, writer in (*strangers, (reader, mine)):
            writer.close()
        await asyncio.gather(*ended, return_exceptions=True)


def written(folder: Path, name: str, tls_of: str, now: datetime | None = None) -> tuple[Path, Path]:
    """A certificate and its authority's, as files."""
    from broker.cluster.link import _Authority  # pyright: ignore[reportPrivateUsage]

    authority, at = _Authority(tls_of), now or datetime.now(UTC)
    certificate, key = authority.issue(at)
    whole, trusted = folder / f"{name}.pem", folder / f"{name}-ca.pem"
    whole.write_bytes(key + certificate)
    trusted.write_text(authority.certificate(at))
    return whole, trusted


async def test_certificates_in_files_are_used_and_read_again(tmp_path: Path) -> None:
    whole, trusted = written(tmp_path, "one", SECRET)
    tls = from_files(whole, None, trusted)
    assert await talk(tls, from_files(whole, whole, trusted))
    other, of_other = written(tmp_path, "other", OTHER)
    assert not await talk(tls, from_files(other, None, of_other))
    whole.write_bytes(other.read_bytes())  # replaced by one that the other nodes do not trust
    assert await talk(tls, from_secret(SECRET))
    tls.renew()
    assert not await talk(tls, from_secret(SECRET))
    whole.unlink()
    with pytest.raises(LinkError, match="TOPICS_CLUSTER_CERT"):
        tls.renew()


@pytest.mark.parametrize(
    ("host", "found"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.8.8.8", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("localhost.example", False), ("", False)],
)  # fmt: skip
def test_only_loopback_addresses_need_no_protection(host: str, found: bool) -> None:
    assert is_loopback(host) is found


def test_a_port_that_other_machines_can_reach_needs_a_secret() -> None:
    import socket

    node = RelayNode("one")
    with socket.socket() as everywhere, socket.socket(socket.AF_UNIX) as local:
        everywhere.bind(("0.0.0.0", 0))
        with pytest.raises(LinkError, match="TOPICS_CLUSTER_SECRET"):
            Relay(node.role, None, local, everywhere)
    asyncio.run(node.stop())
