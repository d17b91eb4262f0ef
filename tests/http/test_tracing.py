"""Spans: their content, their trace, and that no work is done without tracing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from broker.tracing import notes, spans
from broker.tracing.carried import MAX_CARRIED, Carried, of_bodies, of_metas
from broker.tracing.spans import Tracing
from tests.http.calls import append
from tests.http.hot_server import ASGI, HotServer, post, records
from tests.http.queue_calls import queue
from tests.http.test_long_poll import until
from tests.http.test_work_stream import PATIENCE_S

ONE = "4bf92f3577b34da6a3ce929d0e0e4736"
TWO = "0af7651916cd43dd8448eb211c80319c"
T = "/v0/topics/{topic}"


def parent(trace: str, span: str = "00f067aa0ba902b7") -> str:
    return f"00-{trace}-{span}-01"


class Seen:
    """The spans so far."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._memory))
        self.tracing = Tracing(provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._memory.get_finished_spans() if span.name == name]

    def last(self, name: str) -> ReadableSpan:
        return self.named(name)[-1]

    def names(self) -> list[str]:
        return [span.name for span in self._memory.get_finished_spans()]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def server(seen: Seen) -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        server.broker.tracing = server.engine.tracer = seen.tracing
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as http:
        yield http


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.trace_id:032x}"


def links_of(span: ReadableSpan) -> list[str]:
    return [f"{link.context.trace_id:032x}" for link in span.links]


def said(span: ReadableSpan, *names: str) -> list[Any]:
    assert span.attributes is not None
    return [span.attributes.get(name) for name in names]


MESSAGING = (
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "messaging.batch.message_count",
)


@pytest.mark.parametrize("kind", [{}, ASGI], ids=["hot", "asgi"])
async def test_an_append_span_is_a_child_of_the_callers_span_on_both_paths(
    server: HotServer, seen: Seen, kind: dict[str, str]
) -> None:
    await server.topic("t")
    before = server.taken
    answer = await server.ask(post("t", records(1, 2, 3), {**kind, "traceparent": parent(ONE), "tracestate": "a=b"}))
    assert answer.status == 200
    assert server.taken - before == (0 if kind else 1)
    span = seen.last(f"POST {T}")
    assert span.kind is SpanKind.SERVER
    assert (trace_of(span), parent_of(span)) == (ONE, ONE)
    assert span.context is not None
    assert span.context.trace_state.to_header() == "a=b"
    assert said(span, *MESSAGING) == ["append", "send", "t", 3]
    assert said(span, "http.request.method", "http.route", "http.response.status_code") == ["POST", T, 200]
    assert said(span, "messaging.system", "error.type") == ["topics", None]


async def test_the_duration_of_a_span_matches_its_request(server: HotServer, seen: Seen) -> None:
    await server.topic("t")
    answer = await server.ask(post("t", records(1)))
    span = seen.last(f"POST {T}")
    assert span.start_time is not None
    assert span.end_time is not None
    took_ms = (span.end_time - span.start_time) / 1e6
    assert took_ms >= answer.body["performance"]["server_total_ms"] - 1
    assert took_ms < answer.body["performance"]["server_total_ms"] + 10_000


async def test_claims_and_acks_have_spans_on_both_paths(server: HotServer, seen: Seen, http: httpx.AsyncClient) -> None:
    await queue(http, 1, 2, 3, 4)
    for header in ("application/json", "application/json; charset=utf-8"):
        sent = {"content-type": header, "traceparent": parent(ONE)}
        body = json.dumps({"node": "w", "max": 2})
        claimed = (await http.post("/v0/topics/q/claim", content=body, headers=sent)).json()["claimed"]
        span = seen.last(f"POST {T}/claim")
        assert (parent_of(span), said(span, *MESSAGING)) == (ONE, ["claim", "receive", "q", 2])
        done = json.dumps({"node": "w", "seqs": [job["$seq"] for job in claimed]})
        await http.post("/v0/topics/q/ack", content=done, headers=sent)
        assert said(seen.last(f"POST {T}/ack"), *MESSAGING) == ["ack", "settle", "q", 2]
    assert len(seen.named(f"POST {T}/claim")) == len(seen.named(f"POST {T}/ack")) == 2


@pytest.mark.parametrize(
    ("path", "body", "route", "expected"),
    [
        ("t/diff", {}, "/diff", ["read", "receive", "t", 2]),
        ("t/consumers/c/read", {}, "/consumers/{consumer}/read", ["consume", "receive", "t", 2]),
        ("q/nack", {"node": "w", "seqs": [1]}, "/nack", ["nack", "settle", "q", 1]),
        ("q/extend", {"node": "w", "seqs": [1], "lease_ms": 5000}, "/extend", ["extend", "settle", "q", 1]),
    ],
)
async def test_spans_of_other_operations_have_the_number_of_records(
    seen: Seen, http: httpx.AsyncClient, path: str, body: dict[str, Any], route: str, expected: list[Any]
) -> None:
    await append(http, "t", {"data": 1}, {"data": 2, "meta": {"traceparent": parent(TWO)}})
    await queue(http, 1)
    await http.post("/v0/topics/q/claim", json={"node": "w"})
    await http.put("/v0/topics/t/consumers/c", json={})
    assert (await http.post(f"/v0/topics/{path}", json=body)).status_code == 200
    span = seen.last(f"POST {T}{route}")
    assert said(span, *MESSAGING) == expected
    assert parent_of(span) == (TWO if path.startswith("t") else None)


async def test_an_append_of_records_with_a_shared_context_joins_its_trace(seen: Seen, http: httpx.AsyncClient) -> None:
    meta = {"traceparent": parent(ONE), "tracestate": "a=b", "more": 1}
    await append(http, "t", {"data": 1, "meta": meta}, {"data": 2, "meta": meta}, {"data": 3})
    span = seen.last(f"POST {T}")
    assert (trace_of(span), links_of(span)) == (ONE, [])


async def test_an_append_of_records_with_several_contexts_has_links_and_no_parent(
    seen: Seen, http: httpx.AsyncClient
) -> None:
    await append(http, "t", *({"data": 1, "meta": {"traceparent": parent(trace)}} for trace in (ONE, TWO)))
    span = seen.last(f"POST {T}")
    assert parent_of(span) is None
    assert links_of(span) == [ONE, TWO]


async def test_the_context_of_the_header_is_the_parent_and_contexts_of_records_are_linked(
    seen: Seen, http: httpx.AsyncClient
) -> None:
    other = parent(TWO, "b7ad6b7169203331")
    body = {"records": [{"data": 1, "meta": {"traceparent": each}} for each in (other, parent(ONE))]}
    await http.post("/v0/topics/t", json=body, headers={"traceparent": parent(ONE)})
    span = seen.last(f"POST {T}")
    assert (parent_of(span), links_of(span)) == (ONE, [TWO])


async def test_a_claim_span_is_linked_to_the_traces_of_its_jobs(seen: Seen, http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/q", json={"type": "queue"})
    await append(http, "q", *({"data": 1, "meta": {"traceparent": parent(trace)}} for trace in (ONE, TWO)))
    body = {"node": "w", "max": 5}
    await http.post("/v0/topics/q/claim", json=body, headers={"traceparent": parent("1" * 32)})
    span = seen.last(f"POST {T}/claim")
    assert (parent_of(span), links_of(span)) == ("1" * 32, [ONE, TWO])


async def test_a_router_copy_joins_the_trace_of_its_record(
    server: HotServer, seen: Seen, http: httpx.AsyncClient
) -> None:
    await http.put("/v0/routers/r", json={"source": "a", "dest": "b"})
    await append(http, "a", {"data": 1, "meta": {"traceparent": parent(ONE)}})
    await until(lambda: bool(seen.named("forward r")))  # which ends after the write
    [span] = seen.named("forward r")
    assert span.kind is SpanKind.PRODUCER
    assert (trace_of(span), said(span, *MESSAGING)) == (ONE, ["forward", "send", "b", 1])
    assert said(span, "topics.source", "topics.router") == ["a", "r"]
    copy = (await http.get("/v0/topics/b/records/1")).json()
    assert copy["meta"] == {"traceparent": parent(ONE)}  # unchanged


async def test_a_refused_copy_is_a_failed_span(server: HotServer, seen: Seen, http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/b", json={"cap_records": 1, "discard": "reject"})
    await append(http, "b", {"data": 0})
    await http.put("/v0/routers/r", json={"source": "a", "dest": "b"})
    await append(http, "a", {"data": 1})
    await until(lambda: bool(seen.named("forward r")))
    span = seen.named("forward r")[0]
    assert span.status.status_code is StatusCode.ERROR
    assert said(span, "error.type") == ["topic_full"]


async def test_dead_letter_moves_and_redrives_join_the_trace_of_the_job(
    server: HotServer, seen: Seen, http: httpx.AsyncClient
) -> None:
    await http.put("/v0/topics/q", json={"type": "queue", "max_deliveries": 1, "dead_letter": "dead"})
    await append(http, "q", {"data": 1, "meta": {"traceparent": parent(ONE)}})
    await http.post("/v0/topics/q/claim", json={"node": "w"})
    await http.post("/v0/topics/q/nack", json={"node": "w", "seqs": [1]})
    await until(lambda: server.engine.queues.figures("q").dead_lettered == 1 and bool(seen.named("dead_letter q")))
    [span] = seen.named("dead_letter q")
    assert (trace_of(span), said(span, *MESSAGING)) == (ONE, ["dead_letter", "send", "dead", 1])
    assert (await http.post("/v0/topics/q/redrive", json={})).json()["moved"] == 1
    [span] = seen.named("redrive dead")
    assert (trace_of(span), said(span, *MESSAGING)) == (ONE, ["redrive", "send", "q", 1])


async def test_a_refused_request_has_a_span_and_a_failed_request_an_error_span(
    server: HotServer, seen: Seen, http: httpx.AsyncClient
) -> None:
    await http.get("/v0/topics/none")
    span = seen.last(f"GET {T}")
    assert said(span, "http.response.status_code", "error.type", "messaging.system") == [404, None, None]
    assert span.status.status_code is StatusCode.UNSET
    server.engine.logs.ready = False
    await http.get("/v0/topics/none")
    server.engine.logs.ready = True
    span = seen.last(f"GET {T}")
    assert said(span, "http.response.status_code", "error.type") == [503, "503"]
    assert span.status.status_code is StatusCode.ERROR


async def test_the_span_of_an_unknown_path_is_named_by_its_method(seen: Seen, http: httpx.AsyncClient) -> None:
    await http.get("/v0/nowhere/secret")
    assert seen.names() == ["GET"]
    assert said(seen.last("GET"), "http.route") == [None]


async def test_probes_and_metrics_have_no_spans(seen: Seen, http: httpx.AsyncClient) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/v0/metrics"):
        assert (await http.get(path)).status_code == 200
    assert seen.names() == []


@pytest.mark.parametrize(
    "header",
    ["", "x", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"ff-{ONE}-00f067aa0ba902b7-01", f"00-{ONE}-00f067aa0ba902b7"],
)
async def test_an_invalid_traceparent_starts_a_new_trace(seen: Seen, http: httpx.AsyncClient, header: str) -> None:
    answer = await http.post("/v0/topics/t", json=records(1), headers={"traceparent": header})
    assert answer.status_code == 201
    assert parent_of(seen.last(f"POST {T}")) is None


@pytest.mark.parametrize("meta", [5, "traceparent", ["traceparent"], {"traceparent": 5}, {"traceparent": "x"}, None])
async def test_a_meta_without_a_context_adds_no_parent_or_link(seen: Seen, http: httpx.AsyncClient, meta: Any) -> None:
    await append(http, "t", {"data": {"traceparent": parent(ONE)}, "meta": meta})
    span = seen.last(f"POST {T}")
    assert (parent_of(span), links_of(span)) == (None, [])
    await http.post("/v0/topics/t/diff", json={})
    span = seen.last(f"POST {T}/diff")
    assert (parent_of(span), links_of(span)) == (None, [])


def test_contexts_are_read_from_a_bounded_number_of_records() -> None:
    metas = [json.dumps({"traceparent": parent(f"{number:032x}")}).encode() for number in range(1, 300)]
    assert len(of_metas(metas)) == MAX_CARRIED
    assert len(of_bodies(b'{"data":1,"meta":%b}' % meta for meta in metas)) == MAX_CARRIED
    assert of_metas([metas[0]] * 3) == [Carried(parent(f"{1:032x}"))]


async def test_a_failing_tracer_does_not_affect_requests(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no span today")

    monkeypatch.setattr(spans, "_messaging", fail)
    monkeypatch.setattr(notes, "appended", fail)
    await http.put("/v0/routers/r", json={"source": "t", "dest": "b"})
    with capture_logs() as logs:
        await append(http, "t", {"data": 1})
        assert (await server.ask(post("t", records(2)))).status == 200
        await until(lambda: server.engine.state("b").head_seq == 2)
    assert {line["event"] for line in logs} == {"span_not_made"}


async def test_an_error_of_a_move_is_recorded_and_raised(seen: Seen) -> None:
    def raising(error: BaseException) -> None:
        with seen.tracing.moving("forward", "a", "b", [], "r"):
            raise error

    check: list[tuple[Callable[[], BaseException], str]] = [
        (lambda: ValueError("x"), "ValueError"),
        (asyncio.CancelledError, "CancelledError"),
    ]
    for make, name in check:
        error = make()
        with pytest.raises(type(error)) as caught:
            raising(error)
        assert caught.value is error
        assert said(seen.last("forward r"), "error.type") == [name]


async def test_no_trace_note_is_made_with_tracing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(*_: object, **__: object) -> None:
        raise AssertionError("nobody asked")

    for name in ("appended", "claimed", "ack_note", "read", "moved"):
        monkeypatch.setattr(notes, name, noted)
    async with HotServer() as server, httpx.AsyncClient(base_url=server.server.url) as http:
        assert server.broker.tracing is None
        assert server.engine.tracer is None
        await append(http, "t", {"data": 1})
        await http.post("/v0/topics/t/diff", json={})
        assert (await server.ask(post("t", records(2)))).status == 200
        assert server.taken
