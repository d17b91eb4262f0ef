"""The order of a broker's life, with an engine that starts when the test allows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from broker.api.app import build_app
from broker.lifecycle import ExitCode, Lifecycle
from broker.net.listening import CannotListen, listen
from broker.server.server import BrokerServer
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from storage.errors import WalCorrupt
from tests.http.calls import refused
from tests.http.conftest import SMALL


class GatedEngine(Engine):
    """Recovers when `gate` is set. Raises `failure` instead if there is one."""

    gate: asyncio.Event
    failure: Exception | None = None

    async def start(self) -> None:
        self.recovery_progress = 0.5
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        await super().start()


class Running:
    """A broker in this process, from the moment it listens."""

    def __init__(self, tmp_path: Path, *, grace_s: float = 5, **settings: object) -> None:
        given = Settings.model_validate({"data_dir": tmp_path / "data", **settings})
        self.engine = GatedEngine(tmp_path / "data", SMALL)
        self.engine.gate = asyncio.Event()
        self.broker = Broker(self.engine, given)
        self.server = BrokerServer(build_app(self.broker), given, listen("127.0.0.1", 0), grace_s=grace_s)
        self.lifecycle = Lifecycle(self.broker, self.server)
        self.ended = asyncio.create_task(self.lifecycle.run())

    async def until_ready(self) -> None:
        self.engine.gate.set()
        while not self.engine.ready:
            await asyncio.sleep(0.001)


@asynccontextmanager
async def running(tmp_path: Path, **options: object) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    process = Running(tmp_path, **options)  # pyright: ignore[reportArgumentType]
    await process.server.listening()
    async with httpx.AsyncClient(base_url=process.server.url) as client:
        yield process, client
        process.engine.gate.set()
        process.lifecycle.stop()
        await process.ended


async def test_the_port_is_open_while_the_engine_recovers(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, client):
        assert (await client.get("/v0/health")).status_code == 200
        error = refused(await client.get("/v0/ready"), 503, "not_ready")
        assert error["detail"] == {"replay_progress": 0.5}
        refused(await client.get("/v0/topics"), 503, "not_ready")
        await process.until_ready()
        assert (await client.get("/v0/ready")).status_code == 200
        assert (await client.put("/v0/topics/t")).status_code == 201


async def test_a_stop_during_recovery_aborts_the_recovery(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, _):
        process.lifecycle.stop()
        assert await process.ended is ExitCode.OK
        assert not process.engine.ready


async def test_a_failed_recovery_ends_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path) as (process, _):
        process.engine.failure = WalCorrupt("The log is damaged.", file="wal-1.log", offset=77)
        process.engine.gate.set()
        assert await process.ended is ExitCode.CANNOT_START
    said = capsys.readouterr().out + caplog.text
    assert "The log is damaged. (file wal-1.log, offset 77)" in said


async def test_an_unwritable_port_file_ends_the_process(tmp_path: Path) -> None:
    async with running(tmp_path, port_file=tmp_path / "none" / "port") as (process, _):
        assert await process.ended is ExitCode.CANNOT_START


async def test_a_request_in_flight_after_the_grace_ends_with_shutting_down(tmp_path: Path) -> None:
    head = (
        b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 24\r\n\r\n"
    )
    async with running(tmp_path, grace_s=0.2) as (process, client):
        await process.until_ready()
        reader, writer = await asyncio.open_connection("127.0.0.1", process.server.port)
        writer.write(head + b'{"records":')
        await client.get("/v0/health")
        process.lifecycle.stop()
        answer = await reader.read(65_536)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"shutting_down"' in answer
        assert b'"outcome":"unknown"' in answer
        writer.close()
        assert await process.ended is ExitCode.OK


async def test_a_failed_shard_ends_the_process_if_configured(tmp_path: Path) -> None:
    async with running(tmp_path, on_storage_failed="exit") as (process, _):
        await process.until_ready()
        assert process.engine.on_shard_failed is not None
        process.engine.on_shard_failed(0, 5)
        assert await process.ended is ExitCode.STORAGE_FAILED


async def test_a_failed_shard_does_not_end_the_process_by_default(tmp_path: Path) -> None:
    async with running(tmp_path) as (process, client):
        await process.until_ready()
        assert process.engine.on_shard_failed is not None
        process.engine.on_shard_failed(0, 5)
        assert (await client.get("/v0/health")).status_code == 200
        assert not process.ended.done()


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_unusable_certificate_is_reported_with_the_setting(tmp_path: Path, content: str | None) -> None:
    certificate = tmp_path / "cert.pem"
    if content is not None:
        certificate.write_text(content)
    with pytest.raises(CannotListen, match="TOPICS_TLS_CERT"):
        Running(tmp_path, tls_cert=certificate)


async def test_address_of_another_machine_is_reported_with_the_setting() -> None:
    with pytest.raises(
        CannotListen, match=r"^TOPICS_HOST is '192\.0\.2\.1', which is not an address of this machine\.$"
    ):
        listen("192.0.2.1", 0)
