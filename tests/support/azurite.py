"""Azurite, Microsoft's server of Azure's blobs for tests, fetched once by npm into the cache outside the tree."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import httpx

from tests.kafka.java.programs import FETCH_S, alone, cache
from tests.support.broker_process import PATIENCE_S, TETHER

VERSION = "3.37.0"
#: The account and key that every Azurite has.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "tests"
_API = "2021-08-06"
_LISTENS = re.compile(r"listens on (http://\S+)")


def _fetched(npm: str) -> Path:
    wanted = cache() / f"azurite-{VERSION}"
    with alone(cache()):
        if not wanted.is_dir():
            with tempfile.TemporaryDirectory(dir=cache()) as scratch:
                made = Path(scratch, "made")
                command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(made), f"azurite@{VERSION}"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
                assert done.returncode == 0, f"npm could not fetch Azurite: {done.stdout}{done.stderr}"
                made.rename(wanted)
    return wanted / "node_modules/azurite/dist/src/blob/main.js"


@contextmanager
def azurite(npm: str, folder: Path) -> Iterator[str]:
    """A server with one empty container. Yields its address."""
    program, log = _fetched(npm), folder / "azurite.log"
    options = ["--location", str(folder / "azurite"), "--blobPort", "0", "--skipApiVersionCheck", "--disableTelemetry"]
    with log.open("wb") as file:
        process = subprocess.Popen([*TETHER, "node", str(program), *options], stdout=file, stderr=file)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while (found := _LISTENS.search(log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        _create_container(found[1])
        yield found[1]
    finally:
        process.kill()
        process.wait()


def _create_container(address: str) -> None:
    now = formatdate(usegmt=True)
    resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"x-ms-date:{now}\nx-ms-version:{_API}\n{resource}"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": now, "x-ms-version": _API, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    url = f"{address}/{ACCOUNT}/{CONTAINER}?restype=container"
    httpx.put(url, headers=headers, timeout=PATIENCE_S).raise_for_status()
