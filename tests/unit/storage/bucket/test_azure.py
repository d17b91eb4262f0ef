"""The protocol against Azurite, Microsoft's emulator of Azure Blob Storage, from npm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from storage.bucket import open_bucket, probe
from tests.support.owners_in_turn import check_takeover

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

VERSION = "3.35.0"
CONTAINER, CELL = "clusters", "cell-00"
#: Of the account that each Azurite has; published by Microsoft.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PATIENCE_S = 120


def make_container(port: int) -> None:
    """Raises OSError while the server does not listen."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    canonical = "\n".join(f"{name}:{value}" for name, value in headers.items())
    resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"{canonical}\n{resource}"
    signed = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signed}"
        connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An Azurite with an empty container."""
    npm = shutil.which("npm")
    assert npm is not None, "the soak tier needs npm"
    folder = tmp_path_factory.mktemp("azurite")
    install = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"azurite@{VERSION}"]
    subprocess.run(install, stdin=subprocess.DEVNULL, capture_output=True, timeout=600, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    options = ["--blobPort", str(number), "--location", str(folder), "--silent", "--skipApiVersionCheck"]
    with subprocess.Popen([str(program), *options], stdin=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                try:
                    make_container(number)
                    break
                except ConnectionError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            yield number
        finally:
            server.kill()


@pytest.fixture
def store(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a process that uses it."""
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)


def test_the_probe_accepts_the_store(store: None) -> None:
    probe(lambda: open_bucket("az", CONTAINER, "probed"), "probe", "01" * 16)


async def test_an_owner_finds_what_the_one_before_has_acked(store: None, tmp_path: Path) -> None:
    await check_takeover(open_bucket("az", CONTAINER, "cluster"), tmp_path)
