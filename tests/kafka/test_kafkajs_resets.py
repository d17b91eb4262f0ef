"""KafkaJS resets a group. It hung when committed offsets without a record were refused.

In the soak tier only: the client is fetched during the test, which needs npm and its registry.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kafka.groups.server import Server

PACKAGE = "kafkajs@2.2.4"
PATIENCE_S = 120


@pytest.mark.soak
@pytest.mark.timeout(2 * PATIENCE_S + 60)
def test_kafkajs_resets_a_group(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "walks" / "kafkajs_resets.js", folder)
    fetch = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", PACKAGE]
    subprocess.run(fetch, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)
    with Server(tmp_path / "data", kafka_min_session_ms=1000) as server:
        command = ["node", "kafkajs_resets.js", server.address]
        walked = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert walked.returncode == 0, walked.stderr
    assert walked.stdout.splitlines() == [
        "read 0:0 0:1 1:0 1:1",
        "earliest -2 -2",
        "read 0:0 0:1 1:0 1:1",
        "latest -1 -1",
        "set 77 1",
        "read 0:0 0:1 1:1",
    ]
