"""Clients of other languages do everything that they can do with a broker: `tests/kafka/walks/node`, `go` and `rust`.

In the soak tier only: they are fetched and built during the test, which needs the registries.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.groups.server import Server
from tests.kafka.java.programs import cache

WALKS = Path(__file__).resolve().parent / "walks"
PATIENCE_S = 180
BUILD_S = 900
STEPS = ["create", "produce", "consume", "commit", "describe", "delete"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_S + PATIENCE_S + 60)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", kafka_min_session_ms=1000) as server:
        yield server


def done(command: list[str], folder: Path, patience_s: float, **environment: str) -> list[str]:
    """The output of a program that must succeed."""
    found = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout.splitlines()


@pytest.mark.parametrize("client", ["platformatic", "kafkajs"])
def test_a_client_of_node_walks(server: Server, tmp_path: Path, npm: str, client: str) -> None:
    folder = Path(shutil.copytree(WALKS / "node", tmp_path / "node"))
    done([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], folder, BUILD_S)
    assert done(["node", f"{client}.mjs", server.address], folder, PATIENCE_S) == STEPS


@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_a_client_of_go_walks(server: Server, tmp_path: Path, go: str, client: str) -> None:
    program = tmp_path / "walk"
    environment = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    done([go, "build", "-o", str(program), f"./{client}"], WALKS / "go", BUILD_S, **environment)
    assert done([str(program), server.address], tmp_path, PATIENCE_S) == STEPS


def test_a_client_of_rust_walks(server: Server, tmp_path: Path, cargo: str) -> None:
    """It has no groups."""
    folder = Path(shutil.copytree(WALKS / "rust", tmp_path / "rust"))
    target = cache() / "rust"
    done([cargo, "build", "--quiet"], folder, BUILD_S, CARGO_TARGET_DIR=str(target))
    walked = done([str(target / "debug" / "walk"), server.address], tmp_path, PATIENCE_S)
    assert walked == [step for step in STEPS if step != "commit"]
