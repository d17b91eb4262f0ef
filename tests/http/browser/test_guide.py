"""The scripts of the guide for browsers do in a page what the guide says."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.http.browser.chromium import PATIENCE_S, Site
from tests.http.browser.opened_page import OpenedPage
from tests.support.live_server import LiveServer

GUIDE = Path(__file__).parents[3] / "docs/guides/browser.md"
SCRIPT = re.compile(r"<script type=\"module\">\n(.*?)</script>", re.DOTALL)
WRITING = re.compile(r"```js\n(.*?)```", re.DOTALL)
READER, WRITER, ALL = "r" * 32, "w" * 32, "a" * 32
#: What a reader of the guide adds: a place for records, and a look at the console.
OWN = "globalThis.told = []; globalThis.show = (...it) => told.push(it); console.log = (...it) => told.push(it);"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE_S)]


def replaced(text: str, **by: str) -> str:
    """The text with other values for what stands in quotes after these names."""
    for name, value in by.items():
        text, count = re.subn(rf'({name}(?: = |\()")[^"]*"', lambda found, value=value: f'{found[1]}{value}"', text)
        assert count == 1, name
    return text


def page(path: Path, *scripts: str) -> Path:
    path.write_text(f"<script>{OWN}</script>" + "".join(f'<script type="module">{each}</script>' for each in scripts))
    return path


def test_a_page_reads_events_and_writes_with_keys(tmp_path: Path, chromium: str) -> None:
    reading, _ = SCRIPT.findall(GUIDE.read_text())
    [writing] = WRITING.findall(GUIDE.read_text())
    html = tmp_path / "page.html"
    keys = f"{READER}:read:prices,{WRITER}:write:clicks,{ALL}"
    with (
        Site(html) as site,
        LiveServer(tmp_path / "data", cors_origins=site.origin("page.localhost"), api_keys=keys) as server,
        httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {ALL}"}, timeout=PATIENCE_S) as http,
    ):
        http.post("/v0/topics/prices", json={"records": [{"data": {"tea": 5}}]}).raise_for_status()
        http.put("/v0/topics/clicks").raise_for_status()
        known = f'const broker = "{server.url}", key = "{WRITER}";'
        page(html, replaced(reading, broker=server.url, key=READER), known + writing)
        with OpenedPage(chromium, f"{site.origin('page.localhost')}/page", tmp_path) as opened:
            opened.until("told.length >= 2")
            assert opened.evaluate("told") == [[1, {"tea": 5}], ["the backlog ends here, what follows is live"]]
            http.post("/v0/topics/prices", json={"records": [{"data": {"tea": 6}}]}).raise_for_status()
            opened.until("told.length >= 3")
            assert opened.evaluate("told[2]") == [2, {"tea": 6}]
            told = http.post("/v0/topics/clicks/diff", json={"from_seq": 0, "wait_ms": 25_000}).json()
            assert [record["data"] for record in told["records"]] == [{"page": "/page"}]


def test_a_page_reads_and_writes_over_a_websocket(tmp_path: Path, chromium: str) -> None:
    _, both = SCRIPT.findall(GUIDE.read_text())
    html = tmp_path / "page.html"
    with Site(html) as site, LiveServer(tmp_path / "data", cors_origins=site.origin("page.localhost")) as server:
        httpx.put(f"{server.url}/v0/topics/prices").raise_for_status()
        page(html, replaced(both, WebSocket=f"{server.url.replace('http', 'ws')}/v0/ws"))
        with OpenedPage(chromium, f"{site.origin('page.localhost')}/page", tmp_path) as opened:
            opened.until("told.length >= 2")
            assert sorted(opened.evaluate("told"), key=str) == [["stored as", 1], [1, {"tea": 5}]]
