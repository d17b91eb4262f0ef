"""The TypeScript client in a page of another site: it works if the broker names the site, otherwise no call does."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.http.browser.chromium import PATIENCE_S, Site, visit
from tests.support.live_server import LiveServer
from tests.support.node import FETCH_S, FOLDER, build

PAGE = Path(__file__).resolve().parent / "walk.html"
KEYS = "page-key::page"
STEPS = ["append", "read", "watch", "claim", "work", "abort"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * FETCH_S + 2 * PATIENCE_S)]


@pytest.fixture
def site(npm: str) -> Site:
    build(npm)
    return Site(PAGE, FOLDER / "build")


def topics(server: LiveServer) -> list[str]:
    answer = httpx.get(f"{server.url}/v0/topics", headers={"authorization": "Bearer page-key"}).raise_for_status()
    return [each["topic"] for each in answer.json()["topics"]]


def test_the_typescript_client_completes_all_steps_in_a_page_of_an_allowed_site(
    tmp_path: Path, chromium: str, site: Site
) -> None:
    with site:
        origin = site.origin("page.example")
        with LiveServer(tmp_path / "data", api_keys=KEYS, cors_origins=origin) as server:
            assert visit(chromium, site, origin, server.url, tmp_path) == {"steps": STEPS}
            assert topics(server) == ["page-jobs", "page-log"]


def test_the_typescript_client_fails_to_connect_in_a_page_of_another_site(
    tmp_path: Path, chromium: str, site: Site
) -> None:
    with site:
        named = site.origin("other.example")
        with LiveServer(tmp_path / "data", api_keys=KEYS, cors_origins=named) as server:
            found = visit(chromium, site, site.origin("page.example"), server.url, tmp_path)
            assert found["error"] == "ConnectionFailed"
            assert topics(server) == []
