"""Mutual TLS: a server on loopback that asks for a client certificate."""

from __future__ import annotations

import json
import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.client.fake_broker import FakeBroker, listening
from tests.support.certificate import certificate
from topics_client import AsyncClient, Client, ConnectionFailed, InvalidRequest, RetryPolicy
from topics_client.cli import app
from topics_client.commands.terminal import ExitCode

NEVER = RetryPolicy(total_s=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By owner, the folder of a certificate and its key. The server accepts `ours`."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("server", "ours", "strange")}
    for folder in folders.values():
        certificate(folder)
    return folders


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch, files: dict[str, Path]) -> None:
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(files["server"] / "cert.pem"))


@pytest.fixture
def url(fake: FakeBroker, files: dict[str, Path]) -> Iterator[str]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files["server"] / "cert.pem", files["server"] / "key.pem")
    tls.load_verify_locations(files["ours"] / "cert.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    with listening(fake, tls) as url:
        yield url


async def test_a_client_with_a_trusted_certificate_is_accepted(url: str, files: dict[str, Path]) -> None:
    cert, key = files["ours"] / "cert.pem", files["ours"] / "key.pem"
    with Client(url, retry=NEVER, cert=cert, key=key) as client:
        assert client.append("t", [1]).head_seq == 1
    async with AsyncClient(url, retry=NEVER, cert=str(cert), key=str(key)) as other:
        assert (await other.append("t", [2])).head_seq == 2
    # An authority that is named works together with one from the environment.
    with Client(url, retry=NEVER, cert=cert, key=key, ca_file=files["server"] / "cert.pem") as client:
        assert client.health().status == "ok"


def test_a_file_with_certificate_and_key_is_accepted(url: str, files: dict[str, Path], tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes((files["ours"] / "key.pem").read_bytes() + (files["ours"] / "cert.pem").read_bytes())
    with Client(url, retry=NEVER, cert=both) as client:
        assert client.health().status == "ok"


async def test_a_client_without_a_trusted_certificate_is_refused(
    url: str, files: dict[str, Path], fake: FakeBroker
) -> None:
    # In this order: a certificate that one client shows is not shown by the next one.
    with Client(url, cert=files["ours"] / "cert.pem", key=files["ours"] / "key.pem") as client:
        client.health()
    seen = len(fake.requests)
    strange = files["strange"]
    for cert, key in ((None, None), (strange / "cert.pem", strange / "key.pem")):
        with Client(url, retry=NEVER, cert=cert, key=key) as client, pytest.raises(ConnectionFailed):
            client.health()
        async with AsyncClient(url, retry=NEVER, cert=cert, key=key) as other:
            with pytest.raises(ConnectionFailed):
                await other.health()
    assert len(fake.requests) == seen


async def test_a_server_without_a_trusted_certificate_is_refused_with_advice(
    url: str, monkeypatch: pytest.MonkeyPatch, fake: FakeBroker
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with Client(url, retry=NEVER) as client, pytest.raises(ConnectionFailed, match="ca_file") as caught:
        client.health()
    assert caught.value.outcome == "none"
    async with AsyncClient(url, retry=NEVER) as other:
        with pytest.raises(ConnectionFailed, match="ca_file") as caught:
            await other.health()
    assert caught.value.outcome == "none"
    assert fake.requests == []


def test_a_renewed_certificate_is_read_by_the_next_client(url: str, files: dict[str, Path], tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def put(owner: str, changed_ns: int) -> None:
        for path in (cert, key):
            shutil.copy(files[owner] / path.name, path)
            os.utime(path, ns=(changed_ns, changed_ns))

    put("strange", 1)
    with Client(url, retry=NEVER, cert=cert, key=key) as client, pytest.raises(ConnectionFailed):
        client.health()
    put("ours", 2)
    with Client(url, retry=NEVER, cert=cert, key=key) as client:
        assert client.health().status == "ok"


def test_an_unusable_certificate_or_key_is_refused_by_file_name(files: dict[str, Path], tmp_path: Path) -> None:
    cert, key = files["ours"] / "cert.pem", files["ours"] / "key.pem"
    here = "https://127.0.0.1:1"
    with pytest.raises(InvalidRequest, match=r"absent\.pem"):
        Client(here, cert=cert, key=tmp_path / "absent.pem")
    with pytest.raises(InvalidRequest, match=r"cert\.pem"):
        Client(here, cert=cert, key=files["strange"] / "key.pem")
    with pytest.raises(InvalidRequest, match="give cert too"):
        AsyncClient(here, key=key)
    with pytest.raises(InvalidRequest, match="use https"):
        Client("http://127.0.0.1:1", cert=cert, key=key)
    # Nobody is asked for the password of a key.
    certificate(tmp_path, "-passout", "pass:secret")
    with pytest.raises(InvalidRequest, match=r"key\.pem"):
        Client(here, cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")


def test_the_command_line_shows_a_certificate_named_by_options_or_a_context(url: str, files: dict[str, Path]) -> None:
    def topics(*arguments: str, status: int = 0) -> Result:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == status, result.output
        return result

    ours = files["ours"]
    shown = ("--cert", str(ours / "cert.pem"), "--key", str(ours / "key.pem"))
    assert topics("put", "t", "--url", url, *shown)
    topics("list", "--url", url, status=ExitCode.UNREACHABLE)
    topics("context", "add", "prod", "--url", url, "--cacert", str(files["server"] / "cert.pem"), *shown)
    assert "t" in topics("list", "--context", "prod").stdout
    [line] = topics("context", "list", "--json").stdout.splitlines()
    assert (json.loads(line)["cert"], json.loads(line)["key"]) == (shown[1], shown[3])
    plain = topics("context", "add", "plain", "--url", "http://127.0.0.1:1", *shown, status=ExitCode.USAGE)
    assert "use https" in plain.stderr
    alone = topics("list", "--url", url, "--key", shown[3], status=ExitCode.USAGE)
    assert "--cert" in alone.stderr
