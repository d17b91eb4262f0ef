"""A watch over several cells was checked by each of them alone: the limit of topics held for each cell, a missing topic
of one cell came before another's refusal of the key, and a stream was looked for before `Accept` was checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.http.auth_calls import bearer, configured, key
from tests.http.calls import refused
from tests.support.cells_in_process import cells, client_of


async def test_the_limit_of_topics_holds_for_all_cells_together(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        topics: dict[str, Any] = {f"t{number}": {} for number in range(257)}
        error = refused(await client.post("/v0/watch", json={"topics": topics}), 400, "invalid_request")
        assert error["detail"]["field"] == "topics"


async def test_a_stream_is_refused_for_its_accept_header_first(tmp_path: Path) -> None:
    async with cells(tmp_path) as made, client_of(made) as client:
        answer = await client.get("/v0/watch/wid_x", headers={"accept": "text/html"})
        refused(answer, 406, "not_acceptable")


async def test_the_refusal_of_a_key_comes_before_a_missing_topic(tmp_path: Path) -> None:
    async with cells(tmp_path, api_keys=configured("alpha", "beta")) as made, client_of(made) as client:
        for cell in range(3):  # whichever cell comes first
            allowed = next(f"alpha-{number}" for number in range(100) if made.home(f"alpha-{number}") == cell)
            other = next(f"beta-{number}" for number in range(100) if made.home(f"beta-{number}") == (cell + 1) % 3)
            watch: dict[str, Any] = {"topics": {allowed: {}, other: {}}}
            refused(await client.post("/v0/watch", json=watch, headers=bearer(key("r", "alpha"))), 403, "forbidden")
