"""TLS: both versions of HTTP, with keys, and on the fast path; certificates that cannot be used."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest

from tests.http.hot_server import HotServer, records
from tests.http.test_server import ended
from tests.http.watch_calls import session, stream
from tests.support.certificate import certificate
from tests.support.live_server import start


async def test_http_1_and_http_2_are_served_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    async with HotServer(tls_cert=cert, tls_key=key, api_keys="one") as server:
        assert server.server.url.startswith("https://")
        trusting = await asyncio.to_thread(ssl.create_default_context, cafile=str(cert))
        await server.topic("t")
        for number, two in enumerate((False, True)):
            async with httpx.AsyncClient(
                base_url=server.server.url, verify=trusting, http1=not two, http2=two, timeout=20
            ) as http:
                assert (await http.post("/v0/topics/t", json=records(1))).status_code == 401
                http.headers["authorization"] = "Bearer one"
                answer = await http.post("/v0/topics/t", json=records("x" * 300_000))
                assert answer.status_code == 200
                assert answer.http_version == ("HTTP/2" if two else "HTTP/1.1")
                assert len((await http.get("/v0/topics/t/records")).json()["records"]) == number + 1
                async with stream(http, await session(http, "t")) as watch:
                    assert (await watch.next()).name == "record"
        assert server.taken == 1


async def test_a_plain_http_request_to_a_tls_port_gets_no_http_answer(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    async with HotServer(tls_cert=cert, tls_key=key) as server:
        wire = await server.connect()
        wire.send(b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        async with asyncio.timeout(20):
            assert b"HTTP" not in await wire.read()


@pytest.mark.parametrize("case", ["no cert", "no key", "absent", "garbage", "other key", "passphrase"])
def test_an_unusable_certificate_or_key_refuses_the_start_with_one_line(tmp_path: Path, case: str) -> None:
    cert, key = certificate(tmp_path, *(("-passout", "pass:sEcReT") if case == "passphrase" else ()))
    given = {"tls_cert": str(cert), "tls_key": str(key)}
    if case == "no cert":
        del given["tls_cert"]
    elif case == "no key":
        del given["tls_key"]
    elif case == "absent":
        key.unlink()
    elif case == "garbage":
        cert.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    elif case == "other key":
        (tmp_path / "other").mkdir()
        given["tls_key"] = str(certificate(tmp_path / "other")[1])
    code, said = ended(start(tmp_path / "data", **given))
    assert code == (2 if case == "no cert" else 1)
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert "Enter" not in said
    if case != "garbage":
        assert "TOPICS_TLS_KEY" in said
    if case not in ("absent", "passphrase"):
        assert "TOPICS_TLS_CERT" in said


def test_certificate_and_key_may_be_in_one_file(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(cert.read_text() + key.read_text())

    async def ask() -> int:
        trusting = ssl.create_default_context(cafile=str(cert))
        async with (
            HotServer(tls_cert=both) as server,
            httpx.AsyncClient(base_url=server.server.url, verify=trusting) as http,
        ):
            return (await http.get("/v0/ready")).status_code

    assert asyncio.run(ask()) == 200
