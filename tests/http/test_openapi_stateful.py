"""Schemathesis' stateful phase: the next request uses names from the previous answer, as in its own program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.api.app import OPERATIONS
from broker.api.events import EVENT_STREAM
from broker.api.openapi import document
from tests.support.live_server import LiveServer

KEY = "all-of-it"
EXAMPLES = 100
#: A run ends long before. An answer without an end would be waited for until then.
PATIENCE_S = 900
ANSWER_PATIENCE_S = 10


def endless() -> list[str]:
    """Paths whose answers have no end. Other tests request their refusals."""
    paths = document(OPERATIONS)["paths"]
    return [path for path, operations in paths.items() if any(map(_is_endless, operations.values()))]


def _is_endless(operation: dict[str, Any]) -> bool:
    return any(EVENT_STREAM.decode() in answer.get("content", {}) for answer in operation["responses"].values())


def test_streams_are_recognised_by_content_type() -> None:
    assert endless() == ["/v0/topics/{topic}/work", "/v0/watch/{wid}", "/v0/overview/stream"]


@pytest.mark.soak
@pytest.mark.timeout(PATIENCE_S + 60)
@pytest.mark.parametrize("seed", [77, 1, 2024])
@pytest.mark.parametrize("keys", ["", KEY])
def test_names_in_answers_are_accepted_by_later_requests(tmp_path: Path, keys: str, seed: int) -> None:
    settings: dict[str, Any] = {"api_keys": keys} if keys else {}
    with LiveServer(tmp_path / "data", **settings) as server:
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", "--phases", "stateful"),
            *("--seed", str(seed), "--max-examples", str(EXAMPLES), "--request-timeout", str(ANSWER_PATIENCE_S)),
            # A well-formed request may be refused because of what exists. The other tests know the reasons.
            *("--exclude-checks", "positive_data_acceptance", "--generation-database", "none", "--no-color"),
            *(part for path in endless() for part in ("--exclude-path", path)),
            *(("--header", f"Authorization: Bearer {keys}") if keys else ()),
        ]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Stateful (in" in run.stdout
