"""The metrics of a worker, for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from topics_client.workers.lane import BUCKETS_S
from topics_client.workers.worker import Worker

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Name, type, help.
_JOBS = ("topics_worker_jobs_total", "counter", "Jobs by how they ended.")
_RUNNING = ("topics_worker_running", "gauge", "Handlers that are running.")
_WAITING = ("topics_worker_waiting", "gauge", "Jobs that are claimed and not begun.")
_SECONDS = ("topics_worker_handler_seconds", "histogram", "How long handlers took.")


class Exposition:
    """The metrics of one worker, by queue."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def text(self) -> str:
        """In the format of Prometheus."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        lanes = [(_escaped(lane.queue), lane, *lane.figures()) for lane in self._worker.lanes]
        yield from _head(_JOBS)
        for queue, _, counts, _, _ in lanes:
            for outcome, count in counts.items():
                yield f'{_JOBS[0]}{{queue="{queue}",outcome="{outcome}"}} {count}'
        yield from _head(_RUNNING)
        for queue, _, _, running, _ in lanes:
            yield f'{_RUNNING[0]}{{queue="{queue}"}} {running}'
        yield from _head(_WAITING)
        for queue, _, _, _, waiting in lanes:
            yield f'{_WAITING[0]}{{queue="{queue}"}} {waiting}'
        yield from _head(_SECONDS)
        for queue, lane, _, _, _ in lanes:
            within = 0
            for bound, found in zip([*map(str, BUCKETS_S), "+Inf"], list(lane.durations.counts), strict=True):
                within += found
                yield f'{_SECONDS[0]}_bucket{{queue="{queue}",le="{bound}"}} {within}'
            yield f'{_SECONDS[0]}_sum{{queue="{queue}"}} {lane.durations.total_s:.6f}'
            yield f'{_SECONDS[0]}_count{{queue="{queue}"}} {within}'

    def serve(self, host: str, port: int) -> int:
        """Answer GET /metrics from a thread, as long as the process lives. Returns the port, for port 0."""
        exposition = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == "/metrics"
                body = exposition.text().encode() if found else b"Metrics are at /metrics.\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", _CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody wants to read of every scrape."""

        server = ThreadingHTTPServer((host, port), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, name="topics-metrics", daemon=True).start()
        return server.server_address[1]


def _head(metric: tuple[str, str, str]) -> Iterator[str]:
    name, kind, text = metric
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"')
