"""Keys appear in no log, answer, metric, page or file: a broker with the most verbose settings is searched for them."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.broker_process import PATIENCE_S
from tests.support.live_server import ROOT, LiveServer, start

SECRET = "sEcReT-9f8e7d6c"
WRONG = "wRoNg-1a2b3c4d"
PAGES = ["/", "/docs", "/docs/start.js", "/openapi.json", "/v0/metrics", "/v0/health", "/v0/ready", "/v0/topics"]


def requests(server: LiveServer, key: str) -> list[str]:
    """Requests and answers of a client that uses a key in every valid and invalid way."""
    said: list[str] = []
    for two in (False, True):
        with httpx.Client(base_url=server.url, http1=not two, http2=two, timeout=120) as http:
            for headers in ({"authorization": f"Bearer {key}"}, {"authorization": key}, {"x-api-key": key}, {}):
                for accept in ("*/*", "application/json"):
                    said += [_all_of(http.get(path, headers=headers | {"accept": accept})) for path in PAGES]
                for method, path, body in (
                    ("PUT", "/v0/topics/t", {"dead_letter": 7}),
                    ("POST", "/v0/topics/t", {"records": [{"data": 1}]}),
                    ("POST", "/v0/topics/t", {"records": []}),
                    ("POST", "/v0/topics/t/claim", {"node": "n"}),
                    ("POST", "/v0/watch", {"topics": {}}),
                    ("PATCH", "/v0/topics/t", {"dead_letter": 7}),
                    ("GET", "/nowhere", {}),
                ):
                    said.append(_all_of(http.request(method, path, json=body, headers=headers)))
            for path in ("/v0/watch/wid_x", "/v0/topics/absent/work", "/v0/topics/t/work", "/v0/topics", "/v0/ws"):
                queries = (f"token={key}", f"node=%ff&token={key}", f"token={key}%ff")
                said += [_all_of(http.get(f"{path}?{query}")) for query in queries]
    for query in ("", f"?token={key}"):
        with pytest.raises(InvalidStatus) as refusal, connect(f"ws://127.0.0.1:{server.port}/v0/topics{query}"):
            pass
        said.append(str(refusal.value))
    if key == SECRET:
        with connect(
            f"ws://127.0.0.1:{server.port}/v0/ws", additional_headers={"authorization": f"Bearer {key}"}
        ) as ws:
            for message in ("{", '{"type":"subscribe","topic":"!"}', '{"type":"ping"}'):
                ws.send(message)
                said.append(str(ws.recv()))
    for rubbish in (f"GET /v0/topics HTTP/1.1\r\nauthorization: Bearer {key}\r\nx\r\n\r\n", f"{key}\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(rubbish.encode())
            said.append(connection.recv(65_536).decode())
    return said


def _all_of(answer: httpx.Response) -> str:
    return f"{answer.headers.raw} {answer.text}"


def files_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("http", ["zttp", "httptools"])
def test_a_key_is_never_shown(tmp_path: Path, http: str) -> None:
    settings = {"api_keys": f"{SECRET}:rw+d:t", "log_level": "debug", "http": http, "body_timeout_s": "1"}
    with LiveServer(tmp_path / "data", **settings) as server:
        said = requests(server, SECRET) if http == "zttp" else []
        said += requests(server, WRONG) if http == "zttp" else []
        if http == "httptools":
            with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
                for path in PAGES:
                    for key in (SECRET, WRONG):
                        said.append(_all_of(client.get(path, headers={"authorization": f"Bearer {key}"})))
        assert server.stop() == 0
        logged = json.dumps(server.events)
    assert len(said) > 10
    for key in (SECRET, WRONG):
        assert [each for each in said if key in each] == []
        assert key not in logged
        assert key.encode() not in files_of(tmp_path)
    assert SECRET[:6] not in logged


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_mistake_of_the_broker_shows_no_key_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A traceback in the log, with the settings and the headers among its variables."""
    (tmp_path / "keys").write_text(f"{SECRET}:r:t\n")
    (tmp_path / "sitecustomize.py").write_text(
        "import broker.api.routes.reads as reads\n"
        "async def fails(request, body):\n"
        "    headers, settings = request.headers, request.broker.settings\n"
        "    raise RuntimeError('a mistake')\n"
        "reads._read = fails\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    port = tmp_path / "port"
    settings = {"api_keys_file": str(tmp_path / "keys"), "log_format": form, "port_file": str(port)}
    process = start(tmp_path / "data", **settings)
    try:
        answer = _asked(port)
    finally:
        process.terminate()
        _, logged = process.communicate(timeout=120)
    assert answer.status_code == 500, logged
    assert "a mistake" in logged
    assert SECRET not in logged + _all_of(answer)


def _asked(port: Path) -> httpx.Response:
    for _ in range(int(PATIENCE_S * 10)):
        if port.exists():
            url = f"http://127.0.0.1:{port.read_text().strip()}/v0/topics/t/records"
            answer = httpx.get(url, headers={"authorization": f"Bearer {SECRET}"}, timeout=PATIENCE_S)
            if answer.status_code != 503:
                return answer
        time.sleep(0.1)
    raise AssertionError("the broker did not come up")
