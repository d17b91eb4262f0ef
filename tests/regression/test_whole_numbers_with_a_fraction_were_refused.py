"""1.0 and 1e3 are integers in JSON Schema, so clients that follow the OpenAPI document may send them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import requests

from broker.content.whole_numbers import whole
from tests.support.live_server import LiveServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(tmp_path_factory.mktemp("whole") / "data") as server:
        yield server


def send(server: LiveServer, method: str, path: str, body: str) -> tuple[int, dict[str, object]]:
    headers = {"content-type": "application/json"}
    answer = requests.request(method, f"{server.url}/v0/{path}", data=body, headers=headers, timeout=30)
    return answer.status_code, json.loads(answer.content)


def test_every_endpoint_accepts_integers_written_with_a_fraction_or_exponent(server: LiveServer) -> None:
    assert send(server, "PUT", "topics/jobs", '{"type":"queue","lease_ms":5e4,"cap_records":1000.0}')[0] == 201
    status, found = send(server, "POST", "topics/jobs", '{"records":[{"data":{"a":1.0},"delay_ms":0.0}]}')
    assert (status, found["first_seq"]) == (200, 1)
    assert send(server, "POST", "topics/jobs", '{"records":[{"data":[2.50]}],"expected_seq":1.0}')[0] == 200
    status, found = send(server, "POST", "topics/jobs/claim", '{"node":"w","max":2.0,"lease_ms":1e4}')
    assert (status, found["count"]) == (200, 2)
    status, found = send(server, "POST", "topics/jobs/extend", '{"node":"w","seqs":[1.0,2],"lease_ms":1.0e4}')
    assert (status, found["extended"]) == (200, 2)
    assert send(server, "POST", "topics/jobs/nack", '{"node":"w","seqs":[2.0],"delay_ms":10.0}')[1]["nacked"] == 1
    assert send(server, "POST", "topics/jobs/ack", '{"node":"w","seqs":[1.0]}')[1]["acked"] == 1
    assert send(server, "POST", "topics/log", '{"records":[{"data":{"a":1.0}},{"data":2e0}]}')[0] == 201
    answer = requests.post(f"{server.url}/v0/topics/log/diff", json={"from_seq": 0.0, "limit": 10.0}, timeout=30)
    assert b'{"a":1.0}' in answer.content  # payloads are returned byte for byte
    assert b"2e0" in answer.content
    assert send(server, "PUT", "topics/log/consumers/c", '{"start":0.0,"persist_every":10.0}')[0] == 201
    assert send(server, "POST", "topics/log/consumers/c/read", '{"limit":1.0}')[1]["cursor_seq"] == 1
    assert send(server, "POST", "topics/log/consumers/c/commit", '{"seq":2.0}')[1]["cursor_seq"] == 2
    assert send(server, "POST", "watch", '{"topics":{"log":{"from_seq":1.0}},"limit":5.0}')[0] == 200


@pytest.mark.parametrize("number", ["1.5", "1e-1", "1e400", "1e39999999", "-1.0"])
def test_numbers_that_are_not_integers_are_refused(server: LiveServer, number: str) -> None:
    for path, body in [
        ("topics/log/diff", f'{{"limit":{number}}}'),
        ("topics/log", f'{{"records":[{{"data":1}}],"expected_seq":{number}}}'),
        ("topics/jobs/ack", f'{{"node":"w","seqs":[1,{number}]}}'),
        ("watch", f'{{"topics":{{"log":{{"from_seq":{number}}}}}}}'),
    ]:
        status, found = send(server, "POST", path, body)
        assert (status, found["error"]["code"]) == (400, "invalid_request")  # type: ignore[index]


def test_large_integers_keep_every_digit() -> None:
    assert whole(b"18446744073709551615.0") == 2**64 - 1
    assert whole(b"9007199254740993.00") == 2**53 + 1
    assert whole(b"0.5") is None
    assert whole(b"1e99") is None
