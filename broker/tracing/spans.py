"""Spans of requests, and of records that the engine moves. Needs the extra `otel`.

A span is made when its work has ended:

    POST /v0/topics/{topic}       server    parent: the request's `traceparent`, or the only context in its records
    forward ROUTER                producer  parent: the only context in the copied records
    dead_letter TOPIC, redrive TOPIC        the same for a job that is moved

The span links to the contexts of all other records. Attributes follow the semantic conventions for HTTP and messaging.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter, time_ns
from typing import Final

import structlog
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from broker import VERSION
from broker.tracing import notes
from broker.tracing.carried import Carried
from broker.tracing.notes import Note
from storage import HasBody, Move

_log = structlog.get_logger("broker")

_w3c: Final = TraceContextTextMapPropagator()
#: Statuses from this one on are failures of the broker.
_FAILED: Final = 500


class Tracing:
    """`Broker.tracing` and `Engine.tracer` while tracing is on. No method raises."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("topics", VERSION)

    def request(
        self,
        method: str,
        route: str | None,
        status: int,
        started: float,
        headers: Mapping[bytes, bytes],
        note: Note | None,
    ) -> None:
        """Record a request that is about to be answered.

        `started` is a `perf_counter` time; `route` None: no route matched.
        """
        try:
            attributes: dict[str, str | int] = {
                "http.request.method": method,
                "http.response.status_code": status,
                **_messaging(note),
            }
            if route is not None:
                attributes["http.route"] = route
            self._make(
                method if route is None else f"{method} {route}",
                SpanKind.SERVER,
                attributes,
                _context_of_headers(headers),
                note,
                took_ns=int((perf_counter() - started) * 1e9),
                error=str(status) if status >= _FAILED else "",
            )
        except Exception:
            _log.exception("span_not_made")

    @contextmanager
    def moving(
        self, what: Move, source: str, dest: str, records: Sequence[HasBody], router: str | None
    ) -> Generator[None]:
        """See `storage.telemetry.tracing`."""
        began = perf_counter()
        error = ""
        try:
            yield
        except BaseException as raised:
            error = str(getattr(raised, "code", type(raised).__name__))
            raise
        finally:
            self._moved(what, source, dest, records, router, perf_counter() - began, error)

    def close(self, patience_s: float = 5.0) -> None:
        """Send all remaining spans. Those that the collector does not accept within `patience_s` are lost.

        Blocks: do not call it on the event loop.
        """
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(patience_s)

    def _moved(
        self,
        what: Move,
        source: str,
        dest: str,
        records: Sequence[HasBody],
        router: str | None,
        took_s: float,
        error: str,
    ) -> None:
        try:
            note = notes.moved(what, dest, (each.body for each in records), len(records))
            attributes: dict[str, str | int] = {**_messaging(note), "topics.source": source}
            if router is not None:
                attributes["topics.router"] = router
            name = f"{what} {router or source}"
            self._make(name, SpanKind.PRODUCER, attributes, None, note, took_ns=int(took_s * 1e9), error=error)
        except Exception:
            _log.exception("span_not_made")

    def _make(
        self,
        name: str,
        kind: SpanKind,
        attributes: dict[str, str | int],
        parent: Context | None,
        note: Note | None,
        *,
        took_ns: int,
        error: str,
    ) -> None:
        """Make a span that ends now."""
        end_ns = time_ns()
        carried = [_context(each) for each in note.carried] if note is not None else []
        if parent is None:
            parent = carried[0] if len(carried) == 1 else Context()
        own = get_current_span(parent).get_span_context()
        span = self._tracer.start_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            links=[Link(each) for each in _span_contexts(carried) if each != own],
            start_time=end_ns - took_ns,
        )
        if error:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_ns)


def _context_of_headers(headers: Mapping[bytes, bytes]) -> Context | None:
    """The trace context in the headers of a request; None: no valid one."""
    parent = headers.get(b"traceparent")
    if parent is None:
        return None
    context = _context(Carried(parent.decode("latin-1"), headers.get(b"tracestate", b"").decode("latin-1")))
    return context if get_current_span(context).get_span_context().is_valid else None


def _context(carried: Carried) -> Context:
    given = {"traceparent": carried.traceparent}
    if carried.tracestate:
        given["tracestate"] = carried.tracestate
    return _w3c.extract(given, context=Context())


def _span_contexts(contexts: Sequence[Context]) -> list[SpanContext]:
    found = [get_current_span(each).get_span_context() for each in contexts]
    return [each for each in found if each.is_valid]


def _messaging(note: Note | None) -> dict[str, str | int]:
    if note is None:
        return {}
    return {
        "messaging.system": "topics",
        "messaging.operation.name": note.operation,
        "messaging.operation.type": note.kind,
        "messaging.destination.name": note.topic,
        "messaging.batch.message_count": note.records,
    }
