"""Types made of the OpenAPI document by openapi-typescript: a program that leaves out what may be left out compiles,
and does with a broker what it says.

In the soak tier only: the programs are fetched as the test runs, for which npm and its registry have to be there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.support.live_server import LiveServer

TYPES = Path(__file__).resolve().parent / "types"
FETCH_S, PATIENCE_S = 300, 120


def said(command: list[str], folder: Path, patience_s: float = PATIENCE_S, **environment: str) -> str:
    """What a program says that ends well."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=patience_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.soak
@pytest.mark.timeout(FETCH_S + 3 * PATIENCE_S)
def test_a_program_of_typescript_uses_a_broker_by_its_document(tmp_path: Path, npm: str) -> None:
    folder = Path(shutil.copytree(TYPES, tmp_path / "types"))
    said([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], folder, FETCH_S)
    programs = folder / "node_modules" / ".bin"
    with LiveServer(tmp_path / "data") as server:
        document = httpx.get(f"{server.url}/openapi.json").raise_for_status()
        (folder / "openapi.json").write_bytes(document.content)
        said([str(programs / "openapi-typescript"), "openapi.json", "-o", "broker.d.ts"], folder)
        said([str(programs / "tsc"), "-p", "."], folder)
        told = said(["node", "use.js"], folder, BROKER_URL=server.url)
    assert json.loads(told) == {
        "lease": 30_000, "last": 2, "tags": [None, None], "ready": 2, "acked": 1, "read": 2,
        "names": ["dead", "log", "queue"], "code": "topic_not_found",
    }  # fmt: skip
