"""A page in a real browser, against a broker on loopback without keys. A page of another site can do nothing; a page of
a site in TOPICS_CORS_ORIGINS can use the broker.

In the slow tier: a browser takes seconds to start.
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.http.browser.chromium import PATIENCE_S, Site, visit
from tests.support.live_server import LiveServer

NAME = "page.example"
#: The results that a page sees of its attempts, in order. It cannot see those of a form and an image.
ALLOWED = {
    "read": 200, "simple": 200, "blind": 0, "asking": 200, "make": 201, "form": "sent", "websocket": "ack",
    "events": "open", "image": "sent", "watch": "record",
}  # fmt: skip
#: The queues that it pauses.
PAUSED = ["simple", "blind", "form"]
KEPT_AWAY = dict.fromkeys(ALLOWED, "refused") | {"blind": 0, "form": "sent", "image": "sent"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE_S)]


def furnish(server: LiveServer, site: Site) -> None:
    site.broker_port = server.port
    httpx.put(f"{server.url}/v0/topics/log").raise_for_status()
    for queue in ("queue", *PAUSED):
        httpx.put(f"{server.url}/v0/topics/{queue}", json={"type": "queue"}).raise_for_status()
    httpx.post(f"{server.url}/v0/topics/queue", json={"records": [{"data": 1}]}).raise_for_status()


def written(server: LiveServer) -> list[object]:
    """The data of the records in the topic `log`: the names of their writers."""
    told = httpx.post(f"{server.url}/v0/topics/log/diff", json={"from_seq": 0}).raise_for_status().json()
    return [record["data"] for record in told["records"]]


def paused(server: LiveServer) -> list[str]:
    told = {queue: httpx.get(f"{server.url}/v0/topics/{queue}").raise_for_status().json() for queue in PAUSED}
    return [queue for queue in PAUSED if told[queue]["queue"]["paused"]]


def nothing_was_done(server: LiveServer) -> None:
    assert written(server) == []
    assert paused(server) == []
    assert httpx.get(f"{server.url}/v0/topics/made").status_code == 404
    claimed = httpx.post(f"{server.url}/v0/topics/queue/claim", json={"node": "n", "max": 9}).json()
    assert [job["deliveries"] for job in claimed["claimed"]] == [1]


def test_a_page_of_another_site_can_neither_read_nor_write(tmp_path: Path, chromium: str) -> None:
    with Site() as site, LiveServer(tmp_path / "data") as server:
        furnish(server, site)
        found = visit(chromium, site, site.origin(NAME), server.url, tmp_path)
        assert found == KEPT_AWAY
        nothing_was_done(server)


def test_a_page_whose_name_resolves_to_the_broker_is_forbidden(tmp_path: Path, chromium: str) -> None:
    with Site() as site, LiveServer(tmp_path / "data") as server:
        furnish(server, site)
        own = site.origin(NAME)
        # To the browser this is one site, so the page sees the refusals.
        assert visit(chromium, site, own, own, tmp_path) == KEPT_AWAY | dict.fromkeys(
            ("read", "simple", "blind", "asking", "make"), 403
        )
        nothing_was_done(server)


def test_a_page_of_an_allowed_site_can_read_and_write(tmp_path: Path, chromium: str) -> None:
    with Site() as site, LiveServer(tmp_path / "data", cors_origins=site.origin(NAME)) as server:
        furnish(server, site)
        assert visit(chromium, site, site.origin(NAME), server.url, tmp_path) == ALLOWED
        assert written(server) == ["asking", "websocket"]
        assert paused(server) == PAUSED
