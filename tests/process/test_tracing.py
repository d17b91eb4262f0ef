"""A broker that traces, and the collector that gets its spans."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.broker_process import BrokerProcess

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the spans it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _CollectorHandler)
        self.taken: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[tuple[str, str, str]]:
        """(service, name, trace) of each span."""
        return [
            (service, span.name, span.trace_id.hex())
            for request in self.taken
            for resource in request.resource_spans
            for service in [
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            ]
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _CollectorHandler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            self.server.taken.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


def used(broker: BrokerProcess) -> int:
    """One append with a context; returns the output of the stop."""
    body = {"records": [{"data": 1, "meta": {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}}]}
    assert broker.call("POST", "/v0/topics/t", body)[0] == 201
    return broker.stop()


def test_spans_are_exported_to_the_configured_endpoint_and_flushed_at_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector, BrokerProcess(tmp_path) as broker:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
        broker.start(tracing=1)
        assert used(broker) == 0
    assert collector.spans() == [("shop", "POST /v0/topics/{topic}", TRACE)]


def test_a_broker_serves_without_its_trace_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with BrokerProcess(tmp_path) as broker:
        broker.start(tracing=1)
        assert used(broker) == 0
        assert "stopped" in broker.log()


def test_an_unknown_exporter_is_refused_before_the_data_directory_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "smoke")
    with BrokerProcess(tmp_path) as broker:
        broker.launch(tracing=1)
        assert broker.wait() == 2
        assert "OTEL_TRACES_EXPORTER" in broker.log()
        assert not broker.data_dir.exists()
