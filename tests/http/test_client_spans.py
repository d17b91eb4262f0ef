"""The spans of the Python client and those of the broker belong to one trace."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from broker.tracing.spans import Tracing
from tests.client.fake_broker import FakeBroker, no_connection, refused
from tests.http.hot_server import HotServer
from topics_client import AsyncClient, Client, RetryPolicy, TopicNotFound
from topics_client.otel import instrument


class Spans:
    """The spans of one provider, in the order in which they ended."""

    def __init__(self) -> None:
        self._memory = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))

    def all(self) -> list[ReadableSpan]:
        return list(self._memory.get_finished_spans())


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


async def test_the_span_of_the_broker_is_a_child_of_the_span_of_the_client() -> None:
    ours, brokers = Spans(), Spans()
    async with HotServer() as server:
        server.broker.tracing = server.engine.tracer = Tracing(brokers.provider)
        url = server.server.url

        def blocking() -> None:
            with Client(url, instrument=instrument(ours.provider)) as client:
                client.append("t", [1])

        await asyncio.to_thread(blocking)
        async with AsyncClient(url, instrument=instrument(ours.provider)) as client:
            with ours.provider.get_tracer("x").start_as_current_span("handler"):
                await asyncio.gather(client.read("t"), client.state("t"))
            with pytest.raises(TopicNotFound):
                await client.state("nowhere")
    *tries, missing = [span for span in ours.all() if span.kind is SpanKind.CLIENT]
    [handler] = [span for span in ours.all() if span.kind is not SpanKind.CLIENT]
    assert len(tries) == 3
    by_parent = {parent(span): span for span in brokers.all()}
    for each in (*tries, missing):
        child = by_parent.pop(ids(each))
        assert child.kind is SpanKind.SERVER
        assert child.name == each.name
    assert by_parent == {}
    append, *others = tries
    assert append.name == "POST /v0/topics/{topic}"
    assert append.parent is None
    assert {span.name for span in others} == {"POST /v0/topics/{topic}/diff", "GET /v0/topics/{topic}"}
    assert [parent(span) for span in others] == [ids(handler)] * 2
    assert missing.status.status_code is StatusCode.ERROR
    assert dict(missing.attributes or {}) == {
        "http.request.method": "GET",
        "url.template": "/v0/topics/{topic}",
        "http.response.status_code": 404,
        "error.type": "404",
    }


def test_each_try_has_a_separate_span() -> None:
    fake, ours = FakeBroker(), Spans()
    fake.troubles.extend([no_connection, refused(503, "wal_saturated")])
    quick = RetryPolicy(base_s=0.001)
    with Client(http=httpx.MockTransport(fake), retry=quick, instrument=instrument(ours.provider)) as client:
        client.append("orders", [1])
    names = ("http.request.resend_count", "http.response.status_code", "error.type")
    assert [[(span.attributes or {}).get(name) for name in names] for span in ours.all()] == [
        [None, None, "no_answer"],
        [1, 503, "503"],
        [2, 201, None],
    ]
    sent = [request.headers["traceparent"].split("-")[2] for request in fake.requests]
    assert sent == [f"{ids(span)[1]:016x}" for span in ours.all()]
    assert "orders" not in "".join(span.to_json() for span in ours.all())
