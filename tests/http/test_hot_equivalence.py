"""The fast path and the slow path compared: the same requests get the same answers and store the same records.

Each request goes unchanged to one topic, and to another one with a media type whose parameters send it through ASGI.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import Durability, TopicConfig
from tests.http.hot_server import ASGI, HotServer, Reply, Wire, post, records

#: Shorter bodies come in one piece.
ONE_PIECE_BYTES = 32_000
CONFIG = TopicConfig(durability=Durability.FSYNC, cap_records=3000)
_TIMES = re.compile(rb'"(server_total_ms|wal_append_ms|fsync_ms)":[0-9.]+')
_MADE_HERE = re.compile("[0-9a-f]{8}-[0-9a-f]+")


def comparable(answer: Reply, topic: str) -> tuple[Any, ...]:
    """The parts that two equal answers share: without times, names, and lengths that depend on them."""
    assert answer.header("content-length") == [str(len(answer.raw))]
    headers = [(name, value) for name, value in answer.headers if name not in ("date", "content-length")]
    headers = [(name, _MADE_HERE.sub("made here", value)) for name, value in headers]
    return answer.status, headers, _TIMES.sub(rb'"\1":0', answer.text.replace(topic.encode(), b"TOPIC"))


async def stored(wire: Wire, topic: str) -> list[dict[str, Any]]:
    """All records of a topic, without their times."""
    found: list[dict[str, Any]] = []
    while True:
        path = f"/v0/topics/{topic}/records?limit=1000&include_tags=true&from_seq={found[-1]['$seq'] if found else 0}"
        wire.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        page = (await wire.answer()).body.get("records", [])
        if not page:
            return [{name: value for name, value in each.items() if name != "$ts"} for each in found]
        found += page


async def both_ways(wire: Wire, body: bytes, headers: dict[str, str], query: str) -> tuple[Any, Any]:
    outcomes: list[Any] = []
    for topic, kind in (("short-way", {}), ("other-way", ASGI)):
        wire.send(post(topic, body, {**headers, **kind}, query=query))
        outcomes.append(comparable(await wire.answer(), topic))
    return outcomes[0], outcomes[1]


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        yield server


def labelled(count: int, *, key: str | None = None, **labels: Any) -> dict[str, Any]:
    """The body of a write of records with data and these fields."""
    return {"records": [{"data": number, **labels} for number in range(count)], "node": "n", "idempotency_key": key}


HOT: list[tuple[str, Any, dict[str, str], str]] = [
    ("one", records(1), {}, ""),
    ("several", records(1, "ä\U0001f600", None, {"a": [1, {"b": 2}]}, 1.5e300), {}, ""),
    ("spaced", b' {"records" : [ {"data" :  [ 1 , 2 ] } ] } \n', {}, ""),
    ("data twice", b'{"records":[{"data":1,"data":2}]}', {}, ""),
    ("escaped name", b'{"r\\u0065cords":[{"d\\u0061ta":"\\u00e4"}]}', {}, ""),
    ("with a node", records(1, node="n"), {}, ""),
    ("may create", records(1, create=True), {}, ""),
    ("may not create", records(1, create=False), {}, ""),
    ("nulls", records(1, node=None, create=None, idempotency_key=None), {}, ""),
    ("key by body", records(1, idempotency_key="k"), {}, ""),
    ("key by header", records(1), {"idempotency-key": "k"}, ""),
    ("key by both", records(1, idempotency_key="a"), {"idempotency-key": "b"}, ""),
    ("empty key by header", records(1), {"idempotency-key": ""}, ""),
    ("empty key", records(1, idempotency_key=""), {}, ""),
    ("empty node", records(1, node=""), {}, ""),
    ("no seqs", records(1, 2), {}, "?return_seqs=false"),
    ("seqs", records(1, 2), {}, "?return_seqs=true"),
    ("empty query", records(1), {}, "?"),
    ("request id", records(1), {"x-request-id": "abc.1"}, ""),
    ("odd request id", records(1), {"x-request-id": "<script>"}, ""),
    ("gzip, short", records(1), {"accept-encoding": "gzip"}, ""),
    ("gzip", records(*range(1000)), {"accept-encoding": "gzip, deflate"}, ""),
    ("any coding", records(*range(1000)), {"accept-encoding": "*"}, ""),
    ("gzip refused", records(*range(1000)), {"accept-encoding": "gzip;q=0"}, ""),
    ("no coding named", records(*range(1000)), {}, ""),
    ("gzip, without seqs", records(*range(1000)), {"accept-encoding": "gzip"}, "?return_seqs=false"),
    ("more than fits the topic", records(*range(3500)), {}, ""),
    ("different sizes", records(*("x" * (number % 97) for number in range(700))), {}, ""),
    ("deep", b'{"records":[{"data":' + b"[" * 240 + b"]" * 240 + b"}]}", {}, ""),
    ("largest integer", b'{"records":[{"data":' + b"9" * 4000 + b"}]}", {}, ""),
    ("half a megabyte", records("x" * 500_000), {}, ""),
    ("key of 256 bytes", records(1, idempotency_key="k" * 256), {}, ""),
    ("a tag", {"records": [{"data": 1, "tag": "t"}]}, {}, ""),
    ("a meta", {"records": [{"data": 1, "meta": [1]}]}, {}, ""),
    ("a node of its own", {"records": [{"data": 1, "node": "m"}], "node": "n"}, {}, ""),
    ("tags", labelled(100, tag="t"), {}, ""),
    ("nodes", labelled(100, node="m"), {}, ""),
    ("metas", labelled(100, meta={"a": [1, {}]}), {}, ""),
    ("all of these", labelled(100, tag="ä", node="m", meta=None, key="k"), {}, ""),
    ("labels of some", {"records": [*labelled(19, tag="t")["records"], *records(*range(19))["records"]]}, {}, ""),
    ("a meta named otherwise", b'{"records":[{"data":1,"m\\u0065ta":{"a":1}}]}', {}, ""),
    ("labels twice", b'{"records":[{"tag":"a","meta":1,"data":1,"tag":"b","meta":2}]}', {}, ""),
    ("empty labels", labelled(19, tag="", node="", meta={}), {}, ""),
    ("no labels at all", labelled(19, tag=None, node=None, meta=None, delay_ms=None), {}, ""),
    ("as many keys in a meta as may be", labelled(19, meta={str(key): ":::" for key in range(64)}), {}, ""),
    ("accept", records(1), {"accept": "text/event-stream"}, ""),
    ("upgrade", records(1), {"connection": "upgrade", "upgrade": "websocket"}, ""),
    ("unknown field", records(1, colour="blue"), {}, ""),
    ("unknown field of a record", {"records": [{"data": 1, "colour": "blue"}]}, {}, ""),
    ("flag of another kind", records(1), {}, "?return_seqs=1"),
    ("escaped query", records(1), {}, "?return%5Fseqs=false"),
    ("unknown parameter", records(1), {}, "?x=1"),
    ("last parameter counts", records(1), {}, "?return_seqs=true&return_seqs=false"),
]

LEFT: list[tuple[str, Any, dict[str, str], str]] = [
    ("no records", {"records": []}, {}, ""),
    ("no field", {}, {}, ""),
    ("no data", {"records": [{}]}, {}, ""),
    ("no JSON", b'{"records":[{"data":1}],}', {}, ""),
    ("cut off", b'{"records":[{"data":1', {}, ""),
    ("two values", b'{"records":[{"data":1}]}{}', {}, ""),
    ("NaN", b'{"records":[{"data":NaN}]}', {}, ""),
    ("control character", b'{"records":[{"data":"\x01"}]}', {}, ""),
    ("not UTF-8", b'{"records":[{"data":"\xff"}]}', {}, ""),
    ("lone surrogate", b'{"records":[{"data":"\\ud800"}]}', {}, ""),
    ("too deep", b'{"records":[{"data":' + b"[" * 300 + b"]" * 300 + b"}]}", {}, ""),
    ("far too deep", b'{"records":[{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", {}, ""),
    ("a delay in a log", {"records": [{"data": 1, "delay_ms": 5}]}, {}, ""),
    ("tag too long", labelled(19, tag="t" * 257), {}, ""),
    ("tag of another type", labelled(19, tag=5), {}, ""),
    ("node of a record too long", labelled(19, node="n" * 129), {}, ""),
    ("meta too large", labelled(19, meta="m" * 17_000), {}, ""),
    ("too many keys in a meta", labelled(19, meta={str(key): 0 for key in range(65)}), {}, ""),
    ("meta too deep", b'{"records":[{"data":1,"meta":' + b"[" * 300 + b"]" * 300 + b"}]}", {}, ""),
    (
        "meta too deep, spelled otherwise",
        b'{"records":[{"data":1,"m\\u0065ta":' + b"[" * 300 + b"]" * 300 + b"}]}",
        {},
        "",
    ),
    ("lone surrogate in a tag", b'{"records":[{"data":1,"tag":"\\ud800"}]}', {}, ""),
    ("expected seq", records(1, expected_seq=0), {}, ""),
    ("wrong expected seq", records(1, expected_seq=77), {}, ""),
    ("strict key", records(1, idempotency_key="s", idempotency_strict=True), {}, ""),
    ("too many records", b'{"records":[' + b",".join([b'{"data":1}'] * 10_001) + b"]}", {}, ""),
    ("a record too large", records("x" * (1 << 20)), {}, ""),
    ("key too long", records(1, idempotency_key="k" * 257), {}, ""),
    ("key not UTF-8", records(1), {"idempotency-key": "\udcff"}, ""),
    ("key of another type", records(1, idempotency_key=5), {}, ""),
    ("node too long", records(1, node="n" * 129), {}, ""),
    ("bad flag", records(1), {}, "?return_seqs=maybe"),
    ("not gzip", records(1), {"content-encoding": "gzip"}, ""),
    ("identity", records(1), {"content-encoding": "identity"}, ""),
]


def as_bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@pytest.mark.parametrize(("body", "headers", "query"), [each[1:] for each in HOT], ids=[each[0] for each in HOT])
async def test_writes_taken_by_the_short_way_are_answered_as_by_asgi(
    server: HotServer, agains: list[bytes], body: Any, headers: dict[str, str], query: str
) -> None:
    await compare(server, body, headers, query)
    assert agains or len(as_bytes(body)) > ONE_PIECE_BYTES, "the second time nothing is parsed"
    assert (server.taken, server.left) in ((2, 0), (1, 1)), "taken, unless the key is known by then"


@pytest.mark.parametrize(("body", "headers", "query"), [each[1:] for each in LEFT], ids=[each[0] for each in LEFT])
async def test_writes_left_by_the_short_way_are_answered_as_by_asgi(
    server: HotServer, agains: list[bytes], body: Any, headers: dict[str, str], query: str
) -> None:
    await compare(server, body, headers, query)
    if not query and "content-encoding" not in headers and len(as_bytes(body)) < ONE_PIECE_BYTES:
        assert agains, "the second time it is parsed only because it was left"
    assert server.taken == 0


async def compare(server: HotServer, body: Any, headers: dict[str, str], query: str) -> None:
    """The request twice on each path: the second time a key is known."""
    for topic in ("short-way", "other-way"):
        await server.topic(topic, CONFIG)
    wire = await server.connect()
    for _ in range(2):
        one, other = await both_ways(wire, as_bytes(body), headers, query)
        assert one == other
    assert await stored(wire, "short-way") == await stored(wire, "other-way")
    one, other = (server.engine.state(topic) for topic in ("short-way", "other-way"))
    assert (one.head_seq, one.count, one.bytes, one.evict_floor) == (
        other.head_seq,
        other.count,
        other.bytes,
        other.evict_floor,
    )


@pytest.mark.parametrize(
    "name",
    [
        "t%61ken",
        "a%2Fb",
        "%",
        "%zz",
        "",
        ".dot",
        "a b%20",
        "{topic}",
        "{}",
        "x" * 255,
        "x" * 256,
        "t#x",
        "T:._-",
        "t/",
        "ä",
    ],
)
async def test_unusual_topic_names_are_answered_as_by_asgi(server: HotServer, name: str) -> None:
    answers: list[Any] = []
    for kind in ({}, ASGI):
        answers += [comparable(await server.ask(post(name, records(1), kind)), "none")]
        answers[-1][1][:] = [pair for pair in answers[-1][1] if pair[0] != "x-request-id"]
    if answers[0][0] == 201:  # on the second path the topic existed, because the first had created it
        assert answers[1][0] == 200
    else:
        assert answers[0] == answers[1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
MOSTLY = {"node": st.sampled_from(["n", "ö", "", None, 5]), "create": st.sampled_from([True, False, None, "x"])}
KEYS = st.sampled_from(["k", "k", "l", "", None])
LABELS: dict[str, st.SearchStrategy[Any]] = {
    "tag": st.sampled_from(["t", "töö", "", None, "t" * 256, "t" * 257]),
    "node": st.sampled_from(["n", "m", "", None]),
    "meta": JSON,
    "delay_ms": st.none() | st.integers(-1, 3),
}
RECORD = st.fixed_dictionaries({"data": JSON}) | st.fixed_dictionaries({"data": JSON}, optional=LABELS)
BODIES = st.fixed_dictionaries(
    {"records": st.lists(RECORD, max_size=12)},
    optional={"idempotency_key": KEYS, "extra": JSON, "expected_seq": st.integers(0, 3), **MOSTLY},
)
TEXTS = st.tuples(BODIES, st.booleans(), st.sampled_from([None, 1, 2])).map(
    lambda drawn: json.dumps(drawn[0], ensure_ascii=drawn[1], indent=drawn[2]).encode("utf-8", "surrogatepass")
)
#: Whole, or with a few bytes changed, or truncated.
DAMAGED = st.tuples(TEXTS, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2)).map(
    lambda drawn: _changed(*drawn)
)
REQUESTS = st.tuples(
    TEXTS | TEXTS | DAMAGED,
    st.fixed_dictionaries(
        {},
        optional={
            "idempotency-key": st.sampled_from(["k", "h", ""]),
            "accept-encoding": st.sampled_from(["gzip", "identity", "br, *;q=0.1"]),
            "x-request-id": st.sampled_from(["mine", "not ok", "x" * 200]),
        },
    ),
    st.sampled_from(["", "", "?", "?return_seqs=false", "?return_seqs=true", "?return_seqs=x", "?y"]),
)


def _changed(text: bytes, changes: list[tuple[int, int]]) -> bytes:
    out = bytearray(text)
    for at, byte in changes:
        out[at % len(out)] = byte
    return bytes(out)


@settings(max_examples=30)
@given(requests=st.lists(REQUESTS, min_size=1, max_size=12))
async def test_any_sequence_of_requests_is_answered_as_by_asgi(
    requests: list[tuple[bytes, dict[str, str], str]],
) -> None:
    async with HotServer() as server:
        for topic in ("short-way", "other-way"):
            await server.topic(topic, CONFIG)
        wire = await server.connect()
        for body, headers, query in requests:
            one, other = await both_ways(wire, body, headers, query)
            assert one == other
        assert await stored(wire, "short-way") == await stored(wire, "other-way")
