"""`POST /v0/topics/x%2fdelete`, a write to a topic with an unusual name, was carried out as a deletion in the topic x.

Paths are matched after decoding, so a client that encoded the names it was given did not get an error.
"""

from __future__ import annotations

import pytest

from tests.http.hot_server import HotServer, post, records


@pytest.mark.parametrize("http", ["zttp", "httptools"])
@pytest.mark.parametrize("slash", ["%2f", "%2F"])
async def test_a_slash_within_a_name_is_refused(http: str, slash: str) -> None:
    async with HotServer(http=http) as server:
        await server.topic("x")
        await server.ask(post("x", records(1, 2)))
        answer = await server.ask(post(f"x{slash}delete", {"before_seq": 3}))
        assert (answer.status, answer.code) == (400, "invalid_request")
        assert server.engine.state("x").count == 2
