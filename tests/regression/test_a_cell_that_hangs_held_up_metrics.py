"""A cell that accepted connections and answered nothing held up the metrics and the readiness of its set for ever, and
all later scrapes with them. A GET that claims jobs was said to have done nothing when its cell was lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.api import all_operations
from broker.gateway import status
from broker.gateway.forward import changes
from tests.support.cells_in_process import cells, client_of


async def test_the_other_cells_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "LIST_S", 0.3)
    monkeypatch.setattr(status, "PATIENCE_S", 0.3)
    async with cells(tmp_path) as made, client_of(made) as client:
        silent = made.sockets[0].parent / "silent"
        held: list[asyncio.StreamWriter] = []
        server = await asyncio.start_unix_server(lambda _, writer: held.append(writer), silent)
        cell = made.gateway.upstreams[1]
        cell.close()
        cell.path = silent
        first, second = await asyncio.gather(client.get("/v0/metrics"), client.get("/v0/metrics"))
        for answer in (first, second):
            assert 'topics_ready{cell="0"} 1' in answer.text
            assert 'topics_ready{cell="1"}' not in answer.text
            assert 'topics_ready{cell="2"} 1' in answer.text
        ready = await client.get("/v0/ready")
        assert (ready.status_code, ready.json()["error"]["detail"]["cell"]) == (503, 1)
        server.close()
        for writer in held:
            writer.transport.abort()


def test_a_get_that_claims_or_commits_may_have_changed_something() -> None:
    found = {(each.method, each.path): each for each in all_operations("")}
    assert changes(found["GET", "/v0/topics/{topic}/work"])
    assert not changes(found["GET", "/v0/topics/{topic}/records"])
    assert not changes(found["POST", "/v0/topics/{topic}/diff"])
    assert changes(found["POST", "/v0/topics/{topic}/claim"])
