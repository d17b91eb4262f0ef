"""One browser and one broker for all tests of a process: starting them costs more than a test does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.console.built import ConsolePage, build, console
from tests.http.browser.chromium import PATIENCE_S
from tests.support.live_server import LiveServer


@pytest.fixture(scope="session")
def built() -> Path:
    return build()


@pytest.fixture(scope="session")
def server(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(tmp_path_factory.mktemp("console") / "data") as server:
        yield server


@pytest.fixture(scope="session")
def browser(server: LiveServer, chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsolePage]:
    with console(chromium, server.url, tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def http(server: LiveServer) -> Iterator[httpx.Client]:
    """A client of the broker, which has no topics and routers at first."""
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        for field, name in (("routers", "router"), ("topics", "topic")):
            while found := client.get(f"/v0/{field}?page_size=1000").raise_for_status().json()[field]:
                for each in found:
                    client.delete(f"/v0/{field}/{each[name]}").raise_for_status()
        yield client


@pytest.fixture
def page(server: LiveServer, browser: ConsolePage) -> Iterator[ConsolePage]:
    """The console of that broker, as at a first visit."""
    browser.visit(server.url)
    yield browser
    assert browser.problems() == []
