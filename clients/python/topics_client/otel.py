"""Spans of the client's attempts, and the header with which the broker's spans continue them. Needs
`opentelemetry-api`.

Client(instrument=topics_client.otel.instrument())
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from topics_client import __version__
from topics_client.attempts import Attempt, Instrument


def instrument(tracer_provider: TracerProvider | None = None) -> Instrument:
    """For `instrument=` of a client: a span of kind CLIENT for each attempt. The broker gets its `traceparent`.

    A span is the child of the caller's span, and named by method and route. Its attributes are those of the semantic
    conventions for HTTP clients: no name of a topic, no payload and no key. Without `tracer_provider` the global one is
    used.
    """
    tracer = get_tracer("topics_client", __version__, tracer_provider)
    # The broker reads this form, whatever the program sends to other servers.
    propagator = TraceContextTextMapPropagator()

    @contextmanager
    def observe(attempt: Attempt) -> Generator[None]:
        attributes: dict[str, str | int] = {"http.request.method": attempt.method, "url.template": attempt.route}
        if attempt.number > 1:
            attributes["http.request.resend_count"] = attempt.number - 1
        name = f"{attempt.method} {attempt.route}"
        with tracer.start_as_current_span(name, kind=SpanKind.CLIENT, attributes=attributes) as made:
            propagator.inject(attempt.headers)
            yield
            if attempt.status is not None:
                made.set_attribute("http.response.status_code", attempt.status)
            if attempt.status is None or attempt.status >= 400:
                made.set_attribute("error.type", "no_answer" if attempt.status is None else str(attempt.status))
                made.set_status(Status(StatusCode.ERROR, attempt.failure))

    return observe
