"""How the console's files are served: without a key, with a strict policy, cached by their names, packed."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from broker.api import all_operations
from broker.api.console import ConsolePages
from broker.console import files
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine, Options
from tests.http.conftest import client_of

SMALL = Options(wal_shards=1, wal_file_bytes=4 << 20, wal_reserve_bytes=1 << 16)
PAGE = b'<!doctype html><script type="module" src="console/app-0123456789ab.js"></script>'
SCRIPT = b"console.log(1);" * 200
CONSOLE = ConsolePages().operations()


def found_at(folder: Path) -> Callable[[str], Path]:
    """In place of the files of the package: those of this folder."""

    def found(package: str) -> Path:
        return folder

    return found


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of built files, beside which others must not be found."""
    folder = tmp_path / "package" / "static"
    folder.mkdir(parents=True)
    for name, content in (("index.html", PAGE), ("app-0123456789ab.js", SCRIPT)):
        (folder / name).write_bytes(content)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    (folder.parent / "secret.js").write_bytes(b"x")
    monkeypatch.setattr(files, "files", found_at(tmp_path / "package"))
    return folder


async def asked(
    tmp_path: Path, path: str, method: str = "GET", console: bool = True, /, **headers: str
) -> httpx.Response:
    given = {"data_dir": tmp_path / "data", "api_keys": "aaaa", "probe_auth": True, "console": console}
    settings = Settings.model_validate(given)
    async with Engine.open(tmp_path / "data", SMALL) as engine, client_of(Broker(engine, settings)) as client:
        return await client.request(method, path, headers={"accept-encoding": "identity"} | headers)


async def test_the_page_needs_no_key_and_allows_nothing_inline(built: Path, tmp_path: Path) -> None:
    answer = await asked(tmp_path, "/console")
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert "unsafe" not in answer.headers["content-security-policy"]


async def test_scripts_are_cached_for_ever_and_sent_as_they_were_packed(built: Path, tmp_path: Path) -> None:
    plain = await asked(tmp_path, "/console/app-0123456789ab.js")
    assert (plain.status_code, plain.content) == (200, SCRIPT)
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    packed = await asked(tmp_path, "/console/app-0123456789ab.js", **{"accept-encoding": "gzip"})
    assert packed.content == SCRIPT
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(SCRIPT) / 10
    assert packed.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize("name", ["index.html", "..%2fsecret.js", "secret.js", "app-0123456789ab.js.gz", "nothing.js"])
async def test_nothing_else_is_served(built: Path, tmp_path: Path, name: str) -> None:
    assert (await asked(tmp_path, f"/console/{name}")).status_code in (400, 401, 404)


async def test_a_head_has_the_length_and_no_body(built: Path, tmp_path: Path) -> None:
    answer = await asked(tmp_path, "/console", "HEAD")
    assert (answer.content, answer.headers["content-length"]) == (b"", str(len(PAGE)))


async def test_an_address_with_a_slash_leads_to_the_page(tmp_path: Path) -> None:
    answer = await asked(tmp_path, "/console/")
    assert (answer.status_code, answer.headers["location"]) == (307, "../console")


async def test_without_a_build_the_page_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "files", found_at(tmp_path / "nowhere"))
    answer = await asked(tmp_path, "/console")
    assert answer.status_code == 404
    assert "make console" in answer.text


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/app-0123456789ab.js"])
async def test_a_console_that_is_switched_off_is_not_served(built: Path, tmp_path: Path, path: str) -> None:
    answer = await asked(tmp_path, path, "GET", False, authorization="Bearer aaaa")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert not {each.path for each in all_operations("", console=False)} & {each.path for each in CONSOLE}


def test_the_operations_are_not_in_the_openapi_document() -> None:
    assert {each.name for each in CONSOLE} == {""}
    assert all(re.match("/console", each.path) for each in CONSOLE)
