"""A small in-memory broker that behaves like the API, and fails when a test wants it to.

It is a handler for httpx.MockTransport (sync and async alike) and, with `listening`, a real HTTP server on a free port.
It supports: topics, append with idempotency keys, diff, point read, delete, health, ready.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import msgspec

#: What happens to one request. Gets the request and a function that answers it; returns the answer or raises.
Trouble = Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]


@dataclass
class FakeTopic:
    """Records are JSON texts of whole records. Index 0 has seq 1. None is a deleted record."""

    epoch: int
    records: list[bytes | None] = field(default_factory=list)
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    evict_floor: int = 1


class _Append(msgspec.Struct):
    records: list[dict[str, msgspec.Raw]]
    idempotency_key: str | None = None
    idempotency_strict: bool = False
    node: str | None = None


class FakeBroker:
    """`requests`: all that arrived. `troubles`: happen to the next requests, in order. `key`: required if set."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.requests: list[httpx.Request] = []
        self.troubles: deque[Trouble | None] = deque()
        self.key: str | None = None
        self._epochs = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        trouble = self.troubles.popleft() if self.troubles else None
        if trouble is not None:
            return trouble(request, lambda: self._answer(request))
        return self._answer(request)

    def sent_keys(self) -> list[str]:
        """The idempotency keys of all appends that arrived, including refused and lost ones."""
        return [json.loads(r.content)["idempotency_key"] for r in self.requests if r.url.path.endswith("/topics/t")]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return error(401, "unauthorized", "A key is needed.")
        parts = request.url.path.strip("/").split("/")[1:]
        query = request.url.params
        match [request.method, *parts]:
            case ["GET", "health"]:
                return answer({"status": "ok", "version": "0", "uptime_ms": 1, "cluster_id": "c"})
            case ["GET", "ready"]:
                return answer({"status": "ready", "wal_replay_complete": True, "topics": len(self.topics)})
            case ["GET", "metrics"]:
                return httpx.Response(200, text="topics_up 1\n")
            case ["GET", "topics"]:
                return self._list(query.get("prefix", ""), int(query.get("page_size", 100)), query.get("cursor", ""))
            case ["PUT", "topics", name]:
                return self._put(name, json.loads(request.content))
            case ["POST", "topics", name]:
                return self.append(name, request.content)
            case ["DELETE", "topics", name]:
                return self._delete(name, query.get("if_empty") == "true")
            case [_, "topics", name, *_] if name not in self.topics:
                return error(404, "topic_not_found", f"There is no topic named '{name}'.", {"topic": name})
            case ["GET", "topics", name]:
                return answer(self._state(name))
            case ["PATCH", "topics", name]:
                self.topics[name].config |= json.loads(request.content)
                return answer({"topic": name, "created": False, "config": self.topics[name].config})
            case ["POST", "topics", name, "diff"]:
                return self._diff(name, json.loads(request.content))
            case ["GET", "topics", name, "records", seq]:
                return self._point_read(name, int(seq))
            case ["POST", "topics", name, "delete"]:
                return self._delete_records(name, json.loads(request.content))
        return error(404, "not_found", "There is no such route.")

    def topic(self, name: str) -> tuple[FakeTopic, bool]:
        """The topic, created if missing, and whether it was created."""
        created = name not in self.topics
        if created:
            self._epochs += 1
            self.topics[name] = FakeTopic(epoch=self._epochs)
        return self.topics[name], created

    def _put(self, name: str, settings: dict[str, Any]) -> httpx.Response:
        topic, created = self.topic(name)
        topic.config = {"type": "log", "durability": "disk", "cap_records": 0, **settings}
        return answer({"topic": name, "created": created, "config": topic.config}, 201 if created else 200)

    def _state(self, name: str) -> dict[str, Any]:
        topic = self.topics[name]
        live = [record for record in topic.records if record is not None]
        head = len(topic.records)
        return {
            "topic": name,
            "type": "log",
            "epoch": topic.epoch,
            "head_seq": head,
            "earliest_seq": topic.evict_floor,
            "next_seq": head + 1,
            "count": len(live),
            "bytes": sum(map(len, live)),
            "config": topic.config,
            "effective_priority": 0,
            "last_write_ts": None,
            "last_read_ts": None,
            "something_new": True,
        }

    def _list(self, prefix: str, page_size: int, after: str) -> httpx.Response:
        names = sorted(name for name in self.topics if name.startswith(prefix) and name > after)
        page, more = names[:page_size], names[page_size:]
        fields = ("topic", "type", "head_seq", "earliest_seq", "count", "bytes")
        topics = [{f: self._state(name)[f] for f in fields} | {"durable": False} for name in page]
        return answer({"topics": topics, **({"next_cursor": page[-1]} if more else {})})

    def append(self, name: str, body: bytes) -> httpx.Response:
        """Carry out an append with that body."""
        wanted = msgspec.json.decode(body, type=_Append)
        topic, created = self.topic(name)
        key = wanted.idempotency_key
        if key is not None and key in topic.keys:
            differs = topic.bodies[key] != body
            if differs and wanted.idempotency_strict:
                return error(409, "idempotency_conflict", "The idempotency key was used before with another payload.")
            return answer({**topic.keys[key], "deduped": True} | ({"payload_differs": True} if differs else {}))
        first = len(topic.records) + 1
        for record in wanted.records:
            if wanted.node is not None:
                record.setdefault("node", msgspec.Raw(msgspec.json.encode(wanted.node)))
            topic.records.append(self._stored(len(topic.records) + 1, record))
        head = len(topic.records)
        result = {"topic": name, "first_seq": first, "last_seq": head, "head_seq": head, "count": len(wanted.records)}
        if key is not None:
            topic.keys[key], topic.bodies[key] = result, body
        return answer(result | {"created": created, "deduped": False}, 201 if created else 200)

    def _stored(self, seq: int, record: dict[str, msgspec.Raw]) -> bytes:
        names = {"node": "$node", "tag": "$tag"}
        ordered = sorted(record.items(), key=lambda item: ("node", "tag", "data", "meta").index(item[0]))
        fields = b"".join(b',"%s":%s' % (names.get(n, n).encode(), bytes(v)) for n, v in ordered)
        return b'{"$seq":%d,"$ts":%d' % (seq, 1_700_000_000_000 + seq) + fields + b"}"

    def _delete(self, name: str, if_empty: bool) -> httpx.Response:
        if if_empty and name in self.topics and self._state(name)["count"]:
            return error(409, "topic_not_empty", "The topic still holds records.")
        deleted = self.topics.pop(name, None) is not None
        return answer({"topic": name, "deleted": deleted, "routers_removed": []})

    def _diff(self, name: str, wanted: dict[str, Any]) -> httpx.Response:
        topic = self.topics[name]
        head, floor = len(topic.records), topic.evict_floor
        begin = wanted.get("from_seq", 0)
        gap = None
        if begin > head or wanted.get("epoch", topic.epoch) != topic.epoch:
            gap, begin = _gap(1, floor - 1, "recreated", 0, floor, head), floor - 1
        elif begin + 1 < floor:
            gap, begin = _gap(begin + 1, floor - 1, "cap", floor - 1 - begin, floor, head), floor - 1
        end = min(head, begin + (wanted.get("limit") or 256))
        records = [record for record in topic.records[begin:end] if record is not None]
        rest = {
            "topic": name,
            "next_from_seq": end,
            "head_seq": head,
            "earliest_seq": floor,
            "caught_up": end == head,
            "tombstone": gap,
            "lag": head - end,
        }
        body = b'{"records":[' + b",".join(records) + b"]," + msgspec.json.encode(rest)[1:]
        return httpx.Response(200, content=body, headers={"content-type": "application/json"})

    def _point_read(self, name: str, seq: int) -> httpx.Response:
        records = self.topics[name].records
        record = records[seq - 1] if 0 < seq <= len(records) else None
        if record is None:
            reason = "future" if seq > len(records) else "deleted"
            return error(404, "not_found", "There is no record with that seq.", {"reason": reason})
        return httpx.Response(200, content=record, headers={"content-type": "application/json"})

    def _delete_records(self, name: str, wanted: dict[str, Any]) -> httpx.Response:
        records = self.topics[name].records
        before = min(wanted.get("before_seq", 0), len(records) + 1)
        gone = [i for i in range(before - 1) if records[i] is not None]
        for i in gone:
            records[i] = None
        state = self._state(name)
        return answer(
            {"deleted": len(gone), **{f: state[f] for f in ("topic", "earliest_seq", "head_seq", "count", "bytes")}}
        )


def _gap(first: int, last: int, reason: str, missed: int, earliest: int, head: int) -> dict[str, Any]:
    return {
        "gap_from": first,
        "gap_to": last,
        "reason": reason,
        "missed_estimate": missed,
        "earliest_seq": earliest,
        "head_seq": head,
    }


def answer(body: dict[str, Any], status: int = 200) -> httpx.Response:
    """A success, with additional fields that clients have to ignore."""
    return httpx.Response(status, json={**body, "performance": {"server_total_ms": 0.1}})


def error(
    status: int, code: str, message: str, detail: dict[str, Any] | None = None, headers: dict[str, str] | None = None
) -> httpx.Response:
    """A refusal in the format of the API."""
    body = {"error": {"code": code, "message": message, **({"detail": detail} if detail else {})}}
    return httpx.Response(status, json=body, headers=headers)


def refused(status: int, code: str, **particulars: Any) -> Trouble:
    """The broker rejects the request and does nothing."""
    return lambda request, proceed: error(status, code, f"The broker says {code}.", **particulars)


def no_connection(request: httpx.Request, proceed: Callable[[], httpx.Response]) -> httpx.Response:
    """The connection is refused."""
    raise httpx.ConnectError("Connection refused", request=request)


def answer_lost(request: httpx.Request, proceed: Callable[[], httpx.Response]) -> httpx.Response:
    """The broker carries out the request, but the connection breaks before the answer is complete."""
    proceed()
    raise httpx.ReadError("Connection reset", request=request)


def timed_out(request: httpx.Request, proceed: Callable[[], httpx.Response]) -> httpx.Response:
    """The broker carries out the request, but its answer comes too late."""
    proceed()
    raise httpx.ReadTimeout("timed out", request=request)


@contextmanager
def listening(broker: FakeBroker, tls: ssl.SSLContext | None = None) -> Generator[str]:
    """Serve the fake broker on a free port; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            request = httpx.Request(self.command, f"http://fake{self.path}", headers=dict(self.headers), content=body)
            try:
                response = broker(request)
            except httpx.HTTPError:
                self.close_connection = True
                return
            self.send_response(response.status_code)
            self.send_header("Content-Type", response.headers.get("content-type", "application/json"))
            self.send_header("Content-Length", str(len(response.content)))
            for name in ("retry-after",):
                if name in response.headers:
                    self.send_header(name, response.headers[name])
            self.end_headers()
            self.wfile.write(response.content)

        do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            """Writes no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
