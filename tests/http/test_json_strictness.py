"""JSON is checked strictly and alike on every route, and every refusal names the byte."""

from __future__ import annotations

import json

import httpx
import pytest

from broker.content.strict_json import MAX_NESTING
from tests.http.calls import JSON, fill, refused, state

#: (body, wrong byte). A value in `data` is only skipped, not decoded.
MALFORMED = [
    (b'{"records":[{"data":NaN}]}', 20),
    (b'{"records":[{"data":Infinity}]}', 20),
    (b'{"records":[{"data":-Infinity}]}', 21),
    (b'{"records":[{"data":[1,]}]}', 23),
    (b'{"records":[{"data":1,}]}', 22),
    (b'{"records":[{"data":01}]}', 21),
    (b'{"records":[{"data":+1}]}', 20),
    (b'{"records":[{"data":.5}]}', 20),
    (b'{"records":[{"data":1.}]}', 22),
    (b'{"records":[{"data":tru}]}', 21),
    (b"{'records':[]}", 1),
    (b'{"records":[{"data":"a\x01b"}]}', 22),
    (b'{"records":[{"data":"a\nb"}]}', 22),
    (b'{"records":[{"data":"\xff"}]}', 21),
    (b'{"records":[{"data":"\xed\xa0\x80"}]}', 21),
    (b'{"records":[{"data":"\xc0\xaf"}]}', 21),
    (b'{"records":[{"data":1}],"\xff":1}', 25),
    (b'\xef\xbb\xbf{"records":[{"data":1}]}', 0),
    (b'{"records":[{"data":1}]}x', 24),
    (b'{"records":[{"data":1}]} {}', 25),
    (b'{"records":[{"data":1}]', 23),
    (b'{"records":[{"data":"ab', 23),
    (b" ", 1),
    (b'{"records":[{"data":"\\ud800"}]}', 21),
    (b'{"records":[{"data":"\\\\\\ud800"}]}', 23),
    (b'{"records":[{"data":"\\q"}]}', 22),
    (b'{"records":[{"data":/* no */1}]}', 20),
]
LONE_SURROGATES = [
    b'{"records":[{"data":"\\ud800 and more text"}]}',
    b'{"records":[{"data":"\\udc00\\ud800"}]}',
    b'{"records":[{"data":"\\ud800\\ud800\\udc00"}]}',
    b'{"records":[{"data":{"\\udfff":1}}]}',
    b'{"records":[{"data":1,"tag":"\\ud83d"}]}',
    b'{"records":[{"data":1}],"unknown":"\\ud83d"}',
]


async def refuse(client: httpx.AsyncClient, body: bytes) -> int:
    """Refused without a trace. Returns the byte that is named."""
    error = refused(await client.post("/v0/topics/t", content=body, headers=JSON), 400, "invalid_request")
    assert f"byte {error['detail']['byte']}" in error["message"]
    refused(await client.get("/v0/topics/t"), 404, "topic_not_found")
    return error["detail"]["byte"]


@pytest.mark.parametrize(("body", "byte"), MALFORMED)
async def test_a_malformed_body_is_refused_at_its_byte(client: httpx.AsyncClient, body: bytes, byte: int) -> None:
    named = await refuse(client, body)
    # The decoder names the byte where it stopped: the wrong one, or the next.
    assert abs(named - byte) <= 1


@pytest.mark.parametrize("body", LONE_SURROGATES)
async def test_half_a_surrogate_pair_is_refused_at_any_position(client: httpx.AsyncClient, body: bytes) -> None:
    byte = await refuse(client, body)
    assert body[:byte].count(b"\\u") <= body.count(b"\\u")
    assert 0 < byte <= len(body)


@pytest.mark.parametrize("path", ["/v0/topics/t", "/v0/topics/t/diff", "/v0/topics/t/delete"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"a":NaN}',
        b'{"a":1,}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\x00"}',
        b'{"a":',
        b"[" * 5000,
        b"]",
        b"{1:2}",
    ],
)
async def test_every_route_refuses_malformed_json_at_its_byte(
    client: httpx.AsyncClient, path: str, body: bytes
) -> None:
    await fill(client, "t", 1)
    error = refused(await client.post(path, content=body, headers=JSON), 400, "invalid_request")
    assert f"byte {error['detail']['byte']}" in error["message"]
    assert (await state(client, "t"))["count"] == 1


async def test_a_put_is_equally_strict(client: httpx.AsyncClient) -> None:
    for body in (b'{"ttl_ms":NaN}', b'{"ttl_ms":1,}', b'{"a":"\xff"}', b"[" * 5000):
        refused(await client.put("/v0/topics/t", content=body, headers=JSON), 400, "invalid_request")
    refused(await client.get("/v0/topics/t"), 404, "topic_not_found")


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


#: The data is inside the body's object, its array and the record's object.
AROUND_DATA = 3


@pytest.mark.parametrize("filler", [b"", b"[[]],{}," * 400], ids=["alone", "among flat ones"])
async def test_nesting_is_accepted_up_to_the_limit(client: httpx.AsyncClient, filler: bytes) -> None:
    flat = b'{"data":[%b0]},' % filler
    deepest = MAX_NESTING - AROUND_DATA
    body = b'{"records":[%b{"data":%b}]}'
    answer = await client.post("/v0/topics/t", content=body % (flat, nested(deepest)), headers=JSON)
    assert answer.is_success, answer.text
    deeper = body % (flat, nested(deepest + 1))
    error = refused(await client.post("/v0/topics/u", content=deeper, headers=JSON), 400, "invalid_request")
    assert error["detail"]["byte"] == deeper.rindex(b'{"data":') + len(b'{"data":') + deepest
    refused(await client.get("/v0/topics/u"), 404, "topic_not_found")


@pytest.mark.parametrize("levels", [MAX_NESTING, 600, 2000, 100_000])
async def test_deeper_nesting_is_refused_however_deep(client: httpx.AsyncClient, levels: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        body = b'{"records":[{"data":%b1%b}]}' % (opening * levels, closing * levels)
        refused(await client.post("/v0/topics/t", content=body, headers=JSON), 400, "invalid_request")


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_the_nesting_bound_holds_for_settings_and_reads(client: httpx.AsyncClient, method: str) -> None:
    path = "/v0/topics/t" if method == "PUT" else "/v0/topics/t/diff"
    await client.put("/v0/topics/t")
    taken = b'{"unknown":%b}' % nested(MAX_NESTING - 1)
    answer = await client.request(method, path, content=taken, headers=JSON)
    assert answer.is_success or "unknown field" in answer.text  # settings accept no unknown field
    refused_body = b'{"unknown":%b}' % nested(MAX_NESTING)
    error = refused(await client.request(method, path, content=refused_body, headers=JSON), 400, "invalid_request")
    assert "nested" in error["message"]


async def test_brackets_in_strings_do_not_count_as_nesting(client: httpx.AsyncClient) -> None:
    data = '[{"' * 2000 + '\\"]}' * 7
    answer = await client.post("/v0/topics/t", content=json.dumps({"records": [{"data": data}]}), headers=JSON)
    assert answer.is_success
    assert (await client.get("/v0/topics/t/records")).json()["records"][0]["data"] == data


async def test_many_flat_records_do_not_count_as_nesting(client: httpx.AsyncClient) -> None:
    body = json.dumps({"records": [{"data": {"a": [[], {}]}}] * 2000})
    assert (await client.post("/v0/topics/t?return_seqs=false", content=body, headers=JSON)).is_success


async def test_insignificant_space_is_accepted(client: httpx.AsyncClient) -> None:
    assert (
        await client.post("/v0/topics/t", content=b'\r\n\t {"records" : [ {"data":1} ] } \n', headers=JSON)
    ).is_success
