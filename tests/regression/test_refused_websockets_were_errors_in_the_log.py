"""Each refused WebSocket (a page of another site, no key) caused an error in the log: uvicorn takes a refusal for a
handshake that the application forgot."""

from __future__ import annotations

import logging

import pytest

from tests.http.hot_server import HotServer
from tests.regression.test_pages_of_other_sites_used_a_broker_without_keys import PAGE, ask

ERRORS = "uvicorn.error"


@pytest.mark.parametrize(("keys", "headers", "status"), [("", {"origin": PAGE}, 403), ("key", {}, 401)])
async def test_a_refused_websocket_logs_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, keys: str, headers: dict[str, str], status: int
) -> None:
    monkeypatch.setattr(logging.getLogger(ERRORS), "propagate", True)
    with caplog.at_level(logging.WARNING, ERRORS):
        async with HotServer(**({"api_keys": keys} if keys else {})) as server:
            answer = await ask(server, "websocket", **headers)
            assert answer.status == status
            assert answer.code in ("forbidden", "unauthorized")
    assert [record.getMessage() for record in caplog.records] == []
