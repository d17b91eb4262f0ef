"""Segments over HTTP: the list, and the files with ranges and conditions."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.app import build_app
from broker.api.routes import segments
from broker.settings import Settings
from broker.wiring import Broker
from schemas.segments import SegmentsAnswer
from storage import Engine, Options
from storage.format import segment_frame
from storage.segments.download import SegmentDownload
from storage.segments.names import DATA, IDX, SegmentId, path
from tests.http.calls import append, fill, refused, refused_field, state
from tests.http.conftest import client_of
from tests.support.live_server import LiveServer

SMALL = Options(
    wal_shards=1,
    wal_file_bytes=4 << 20,
    wal_reserve_bytes=1 << 16,
    segment_max_events=10,
    checkpoint_interval_ms=3_600_000,
)
FILES = ["data", "idx"]
FSYNC = {"durability": "fsync"}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with Engine.open(tmp_path / "data", SMALL) as engine:
        yield engine


async def listed(client: httpx.AsyncClient, topic: str = "t") -> dict[str, Any]:
    answer = await client.get(f"/v0/topics/{topic}/segments")
    assert answer.status_code == 200, answer.text
    SegmentsAnswer.model_validate(answer.json())
    return answer.json()


async def fetch(client: httpx.AsyncClient, file: str = "data", first_seq: Any = 1, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.get(f"/v0/topics/t/segments/{first_seq}/{file}", headers=named)


def on_disk(engine: Engine, id: SegmentId, file: str) -> bytes:
    return Path(path(engine.path, id, file)).read_bytes()


async def flushed(engine: Engine, client: httpx.AsyncClient, count: int = 25, **config: Any) -> None:
    records = [{"data": f"secret-{seq}", "tag": f"tag-{seq}"} for seq in range(1, count + 1)]
    for begin in range(0, count, 10):  # a batch is never divided between segments
        await append(client, "t", *records[begin : begin + 10], config=FSYNC | config)
    await engine.segment_worker.flush_all()


async def delete(client: httpx.AsyncClient, *seqs: int) -> None:
    for seq in seqs:
        answer = await client.post("/v0/topics/t/delete", json={"match": f"tag-{seq}"})
        assert answer.json()["deleted"] == 1


# -- the list --------------------------------------------------------------------------------------------------------


async def test_a_new_topic_has_no_segments(engine: Engine, client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    found = await listed(client)
    assert found["performance"]["server_total_ms"] >= 0
    assert {name: found[name] for name in ("segments", "loss", "tail", "renewals")} == {
        "segments": [],
        "loss": [],
        "renewals": [],
        "tail": {"first_seq": 1, "end_seq": 1},
    }
    assert (found["earliest_seq"], found["evict_floor"], found["head_seq"], found["durable_seq"]) == (1, 1, 0, 0)
    assert found["cluster_id"] == (await client.get("/v0/health")).json()["cluster_id"]
    assert found["epoch"] == (await state(client, "t"))["epoch"]


async def test_the_segment_list_is_contiguous_and_ends_at_the_tail(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    await fill(client, "t", 2)
    found = await listed(client)
    shown = [(each["first_seq"], each["end_seq"], each["sealed"]) for each in found["segments"]]
    assert shown == [(1, 11, True), (11, 21, True), (21, 26, False)]
    assert found["tail"] == {"first_seq": 26, "end_seq": 28}
    assert found["head_seq"] == found["durable_seq"] == 27
    first = found["segments"][0]
    assert (first["records"], first["live"], first["tier"], first["generation"], first["format"]) == (
        10,
        10,
        "hot",
        0,
        1,
    )
    assert first["bytes"] == len((await fetch(client)).content)


async def test_evicted_records_are_in_the_file_but_not_live(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    await client.put("/v0/topics/t", json=FSYNC | {"cap_records": 18})
    found = await listed(client)
    assert (found["earliest_seq"], found["evict_floor"]) == (8, 8)
    assert [(each["records"], each["live"]) for each in found["segments"]] == [(10, 3), (10, 10), (5, 5)]


async def test_loss_ranges_have_both_ends(engine: Engine, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    engine.catalog.topics["t"].log.evict(loss=[(4, 6, "crash")])
    assert (await listed(client))["loss"] == [{"from": 4, "to": 6, "cause": "crash"}]


async def test_renewals_are_the_epochs_with_the_head_when_they_began(engine: Engine, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    log = engine.catalog.topics["t"].log
    log.renew(7, 3)
    await fill(client, "t", 2)
    log.renew(9, 4)
    found = await listed(client)
    assert (found["epoch"], found["renewals"]) == (9, [{"epoch": 7, "head_seq": 3}, {"epoch": 9, "head_seq": 4}])


async def test_an_ephemeral_topic_has_a_tail(engine: Engine, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 15, config={"durability": "ephemeral"})
    await engine.segment_worker.flush_all()
    found = await listed(client)
    assert (found["segments"], found["tail"]) == ([], {"first_seq": 1, "end_seq": 16})
    assert (found["head_seq"], found["durable_seq"]) == (15, 0)


@pytest.mark.parametrize("below", ["", "/1/data", "/1/idx"])
async def test_absent_and_deleted_topics_are_not_found(engine: Engine, client: httpx.AsyncClient, below: str) -> None:
    refused(await client.get(f"/v0/topics/t/segments{below}"), 404, "topic_not_found")
    await flushed(engine, client)
    await client.delete("/v0/topics/t")
    refused(await client.get(f"/v0/topics/t/segments{below}"), 404, "topic_not_found")
    refused_field(await client.get(f"/v0/topics/.t/segments{below}"), "topic")
    refused(await client.post(f"/v0/topics/t/segments{below}"), 405, "method_not_allowed")


# -- the files -------------------------------------------------------------------------------------------------------


async def test_a_segment_file_is_sent_whole_with_its_headers(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    topic_id = (await listed(client))["topic_id"]
    for first_seq in (1, 11):
        for file in FILES:
            answer = await fetch(client, file, first_seq, accept_encoding="gzip")
            assert answer.status_code == 200
            assert answer.content == on_disk(engine, SegmentId(topic_id, first_seq), file)
            flags = ".0" if file == "idx" else ""
            assert answer.headers["etag"] == f'"{topic_id}.{first_seq}.0{flags}"'
            assert answer.headers["accept-ranges"] == "bytes"
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-length"] == str(len(answer.content))
            assert answer.headers["cache-control"] == "no-store"
            assert "content-encoding" not in answer.headers
            assert answer.headers["x-request-id"]


async def test_deleted_records_are_blank(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    before = (await fetch(client)).content
    idx_tag = (await fetch(client, "idx")).headers["etag"]
    await delete(client, 3, 7)
    answer = await fetch(client)
    assert len(answer.content) == len(before)
    at = 0
    for seq in range(1, 11):
        frame = segment_frame.decode(answer.content, at)
        assert (frame.seq, frame.deleted, any(frame.tag + frame.data)) == (seq, seq in (3, 7), seq not in (3, 7))
        at += frame.size
    assert (await fetch(client, "idx")).headers["etag"] == idx_tag.replace('.0"', '.2"')
    assert [each["records"] for each in (await listed(client))["segments"]] == [8, 10, 5]


@pytest.mark.parametrize("file", FILES)
async def test_a_head_has_the_length_and_no_body(engine: Engine, client: httpx.AsyncClient, file: str) -> None:
    await flushed(engine, client)
    whole = await fetch(client, file)
    answer = await client.head(f"/v0/topics/t/segments/1/{file}", headers={"range": "bytes=0-1"})
    assert (answer.status_code, answer.content) == (200, b"")
    for name in ("content-length", "etag", "accept-ranges", "content-type"):
        assert answer.headers[name] == whole.headers[name]


@pytest.mark.parametrize("file", FILES)
async def test_an_unsealed_or_absent_segment_is_not_found_with_its_reason(
    engine: Engine, client: httpx.AsyncClient, file: str
) -> None:
    await flushed(engine, client)
    error = refused(await fetch(client, file, 21), 404, "not_found")
    assert error["detail"] == {"reason": "active", "first_seq": 21}
    assert "sealed" in error["message"]
    for first_seq in (0, 2, 26, 2**64 - 1):
        assert refused(await fetch(client, file, first_seq), 404, "not_found")["detail"]["reason"] == "absent"
    for wrong in ("x", "-1", "1.0", str(2**64), "%D9%A3"):
        refused_field(await fetch(client, file, wrong), "first_seq")


async def test_a_range_of_a_segment_file_is_sent_with_content_range(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    whole = (await fetch(client)).content
    answer = await fetch(client, range="bytes=5-99")
    assert (answer.status_code, answer.content) == (206, whole[5:100])
    assert answer.headers["content-range"] == f"bytes 5-99/{len(whole)}"
    assert answer.headers["content-length"] == "95"
    assert answer.headers["etag"]


@pytest.mark.parametrize("file", FILES)
async def test_a_range_beyond_the_end_is_refused(engine: Engine, client: httpx.AsyncClient, file: str) -> None:
    await flushed(engine, client)
    size = len((await fetch(client, file)).content)
    for asked in (f"bytes={size}-", "bytes=-0"):
        answer = await fetch(client, file, range=asked)
        assert refused(answer, 416, "range_not_satisfiable")["detail"] == {"size": size}
        assert answer.headers["content-range"] == f"bytes */{size}"


async def test_several_ranges_are_answered_with_the_whole(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    answer = await fetch(client, range="bytes=0-1,4-5")
    assert (answer.status_code, answer.content) == (200, (await fetch(client)).content)


def test_every_range_is_a_slice_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pieces so small that answers have many, and with deleted records across their borders."""
    monkeypatch.setattr(segments, "PIECE_BYTES", 64)
    offsets = st.integers(0, 1200)
    ranges = st.lists(
        st.one_of(
            st.builds("bytes={}-".format, offsets),
            st.builds("bytes=-{}".format, offsets),
            st.builds(lambda a, b: f"bytes={min(a, b)}-{max(a, b)}", offsets, offsets),
        ),
        min_size=1,
        max_size=8,
    )
    with asyncio.Runner() as runner:
        engine = Engine(tmp_path / "data", SMALL)
        runner.run(engine.start())
        client = client_of(Broker(engine, Settings(data_dir=tmp_path / "data")))
        runner.run(flushed(engine, client))
        runner.run(delete(client, 1, 4, 5, 10))
        wholes = {file: runner.run(fetch(client, file)).content for file in FILES}

        @given(file=st.sampled_from(FILES), asked=ranges)
        def check(file: str, asked: list[str]) -> None:
            whole = wholes[file]
            for header in asked:
                answer = runner.run(fetch(client, file, range=header))
                first, _, last = header.removeprefix("bytes=").partition("-")
                part = whole[-int(last) :] if not first else whole[int(first) : int(last) + 1 if last else None]
                if not part or header == "bytes=-0":
                    assert answer.status_code == 416
                else:
                    assert (answer.status_code, answer.content) == (206, part)

        check()
        runner.run(client.aclose())
        runner.run(engine.close())


# -- conditions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
async def test_conditional_requests_for_a_segment_file_are_honored(
    engine: Engine, client: httpx.AsyncClient, file: str
) -> None:
    await flushed(engine, client)
    tag = (await fetch(client, file)).headers["etag"]
    assert (await fetch(client, file, if_match=tag, range="bytes=0-9")).status_code == 206
    assert refused(await fetch(client, file, if_match='"other"'), 412, "precondition_failed")["detail"] == {"etag": tag}
    answer = await fetch(client, file, if_none_match=tag)
    assert (answer.status_code, answer.content) == (304, b"")
    assert answer.headers["etag"] == tag
    assert (await fetch(client, file, if_none_match='"other"')).status_code == 200
    assert (await fetch(client, file, if_range=tag, range="bytes=0-9")).status_code == 206
    assert (await fetch(client, file, if_range='"other"', range="bytes=0-9")).status_code == 200


async def test_the_etag_of_a_rewritten_segment_does_not_match(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    tags = {file: (await fetch(client, file)).headers["etag"] for file in FILES}
    await delete(client, *range(1, 7))
    await engine.segment_worker.flush_all()
    for file in FILES:
        refused(await fetch(client, file, if_match=tags[file]), 412, "precondition_failed")
        answer = await fetch(client, file)
        assert answer.headers["etag"].split(".")[:3] != tags[file].split(".")[:3]
    assert (await listed(client))["segments"][0]["generation"] == 1


async def test_a_dropped_segment_is_not_found_with_if_match(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    tag = (await fetch(client)).headers["etag"]
    await client.post("/v0/topics/t/delete", json={"before_seq": 11})
    await engine.segment_worker.flush_all()
    assert refused(await fetch(client, if_match=tag), 404, "not_found")["detail"]["reason"] == "absent"


async def test_an_index_with_more_deletions_does_not_match(engine: Engine, client: httpx.AsyncClient) -> None:
    await flushed(engine, client)
    tags = {file: (await fetch(client, file)).headers["etag"] for file in FILES}
    await delete(client, 2)
    refused(await fetch(client, "idx", if_match=tags["idx"]), 412, "precondition_failed")
    assert (await fetch(client, "data", if_match=tags["data"])).status_code == 200


# -- large ones ------------------------------------------------------------------------------------------------------


async def exchange(broker: Broker, target: str, on_message: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """A GET as the server sees it: the messages sent. `on_message` is called with each."""
    sent: list[dict[str, Any]] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        try:
            on_message(message)
        except ConnectionError:
            gone.set()
        await asyncio.sleep(0)

    scope = {"type": "http", "method": "GET", "path": target, "query_string": b"", "headers": []}
    await build_app(broker)(scope, receive, send)
    return sent


async def large(engine: Engine, client: httpx.AsyncClient) -> None:
    await append(client, "t", *({"data": "x" * 500_000, "tag": f"tag-{seq}"} for seq in range(1, 11)), config=FSYNC)
    await engine.segment_worker.flush_all()


async def test_a_large_file_comes_in_bounded_pieces(engine: Engine, broker: Broker, client: httpx.AsyncClient) -> None:
    await large(engine, client)
    sent = await exchange(broker, "/v0/topics/t/segments/1/data", lambda message: None)
    start, *bodies = sent
    pieces = [message.get("body", b"") for message in bodies]
    assert len(pieces) > 9
    assert max(map(len, pieces)) <= segments.PIECE_BYTES
    assert [message.get("more_body", False) for message in bodies] == [True] * (len(bodies) - 1) + [False]
    content = b"".join(pieces)
    assert int(dict(start["headers"])[b"content-length"]) == len(content) > 5_000_000
    assert struct.unpack_from("<Q", content, 13) == (1,)
    assert content == (await fetch(client)).content


async def test_reading_a_segment_stops_when_its_client_disconnects(
    engine: Engine, broker: Broker, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await large(engine, client)
    reads: list[int] = []
    read = SegmentDownload.read

    async def counting(self: SegmentDownload, begin: int, end: int) -> bytes:
        reads.append(begin)
        return await read(self, begin, end)

    monkeypatch.setattr(SegmentDownload, "read", counting)

    def leave(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            raise ConnectionError

    sent = await exchange(broker, "/v0/topics/t/segments/1/data", leave)
    assert len(reads) < 5
    assert sent[-1]["more_body"]


async def test_a_download_of_a_dropped_segment_is_left_incomplete(
    engine: Engine, broker: Broker, client: httpx.AsyncClient
) -> None:
    await large(engine, client)
    log = engine.catalog.topics["t"].log

    def drop(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and log.held.manifest.segments:
            log.held.manifest.remove(log.held.manifest.segments[0])

    sent = await exchange(broker, "/v0/topics/t/segments/1/data", drop)
    assert sent[0]["status"] == 200
    assert sent[-1]["more_body"]


@pytest.mark.parametrize("file", [DATA, IDX])
async def test_a_missing_segment_file_is_answered_with_segment_corrupt(
    engine: Engine, client: httpx.AsyncClient, file: str
) -> None:
    await flushed(engine, client)
    engine.fs.unlink(path(engine.path, SegmentId((await listed(client))["topic_id"], 1), file))
    refused(await fetch(client, file), 500, "segment_corrupt")


@pytest.mark.parametrize("http_2", [False, True])
def test_a_server_sends_files_ranges_and_304_on_a_single_connection(tmp_path: Path, http_2: bool) -> None:
    """Over sockets: a large body, its length in answer to a HEAD, a part, 304, and the connection is usable
    afterwards."""
    config = {"durability": "fsync"}
    small = {"segment_max_events": "10", "checkpoint_records": "1", "checkpoint_interval_ms": "10"}
    with (
        LiveServer(tmp_path / "data", **small) as server,
        httpx.Client(base_url=server.url, http1=not http_2, http2=http_2, timeout=30) as client,
    ):
        for _ in range(10):
            client.post("/v0/topics/t", json={"records": [{"data": "x" * 500_000}], "config": config})
        while not any(each["sealed"] for each in client.get("/v0/topics/t/segments").json()["segments"]):
            pass
        data = "/v0/topics/t/segments/1/data"
        whole = client.get(data)
        assert whole.http_version == ("HTTP/2" if http_2 else "HTTP/1.1")
        assert len(whole.content) == int(whole.headers["content-length"]) > 5_000_000
        head = client.head(data)
        assert (head.status_code, head.headers["content-length"]) == (200, str(len(whole.content)))
        part = client.get(data, headers={"range": "bytes=1000000-2999999"})
        assert (part.status_code, part.content) == (206, whole.content[1_000_000:3_000_000])
        same = client.get(data, headers={"if-none-match": whole.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        with client.stream("GET", data) as left:
            next(left.iter_raw(1000))
        assert client.get("/v0/health").status_code == 200
    assert not [line for line in server.events if line.get("level") in ("error", "warning")]
