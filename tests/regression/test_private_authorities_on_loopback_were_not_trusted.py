"""A broker on loopback with a certificate of a private authority could not be reached: SSL_CERT_FILE was ignored for
loopback, and there was no other way to name the authority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.http.hot_server import HotServer
from tests.support.certificate import certificate
from topics_client import AsyncClient, Client, ConnectionFailed, InvalidRequest, RetryPolicy
from topics_client.cli import app

NEVER = RetryPolicy(total_s=0)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    return certificate(tmp_path)[0]


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def url(authority: Path) -> AsyncIterator[str]:
    async with HotServer(tls_cert=authority, tls_key=authority.with_name("key.pem")) as server:
        yield server.server.url


def health(url: str, **options: Path) -> str:
    with Client(url, retry=NEVER, **options) as client:
        return client.health().status


async def test_an_unnamed_authority_is_not_trusted(url: str) -> None:
    with pytest.raises(ConnectionFailed, match="certificate"):
        await asyncio.to_thread(health, url)


async def test_an_authority_named_by_the_environment_is_trusted(
    url: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy that is set in the environment too is still not used.
    monkeypatch.setenv("ALL_PROXY", "http://proxy.invalid:1")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert await asyncio.to_thread(health, url) == "ok"
    async with AsyncClient(url, retry=NEVER) as client:
        assert (await client.health()).status == "ok"


async def test_an_authority_named_by_ca_file_is_trusted(
    url: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "absent.pem")
    assert await asyncio.to_thread(health, url, ca_file=authority) == "ok"
    async with AsyncClient(url, retry=NEVER, ca_file=str(authority)) as client:
        assert (await client.health()).status == "ok"


async def test_an_authority_named_by_the_command_line_is_trusted(
    url: str, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def topics(*arguments: str) -> int:
        return CliRunner().invoke(app, [*arguments, "--url", url]).exit_code

    named = ("--cacert", str(authority))
    assert await asyncio.to_thread(topics, "put", "t") == 3
    for arguments in (("put", "t"), ("routers", "list"), ("consumers", "list", "t"), ("list",)):
        assert await asyncio.to_thread(topics, *arguments, *named) == 0
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert await asyncio.to_thread(topics, "state", "t") == 0


def test_an_unusable_authority_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("no certificate")
    for path in (tmp_path / "absent.pem", broken):
        with pytest.raises(InvalidRequest, match=path.name):
            Client("https://127.0.0.1:1", ca_file=path)
