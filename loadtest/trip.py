"""Counts the steps of one request: calls of the project's functions, and the files that define them.

    python -m loadtest.trip
    python -m loadtest.trip append claim --json
    python -m loadtest.trip append --calls

A broker runs in this process, with its usual threads. Each operation runs often enough to be warm, and then again under
`sys.setprofile`, one request at a time, until the smallest count has occurred several times. It is reported, so that
the work of timers does not count. A coroutine counts again each time it resumes. The count includes calls of functions
in broker/, storage/ and schemas/, on all threads, from the sending of the request until a moment after its answer.
Libraries and compiled functions do not count.

This counts the steps a reader has to follow, not time: see `loadtest.guard` for that.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import confluent_kafka
import msgspec
import structlog
import uvloop

from broker.api import build_app
from broker.kafka import bind_port
from broker.lifecycle import Lifecycle
from broker.net import listen
from broker.server import BrokerServer
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine

ROOT: Final = Path(__file__).resolve().parent.parent
OURS: Final = tuple(f"{ROOT / name}/" for name in ("broker", "storage", "schemas", "kernel"))
WARM: Final = 40
TRIES: Final = 25
#: On a crowded machine the work of timers falls into most requests. So the smallest count has to be seen this often,
SEEN: Final = 3
#: unless this many requests have been counted.
MOST_TRIES: Final = 150
#: Behind an answer, what the broker does yet for its request comes within so long.
QUIET_S: Final = 0.02
PATIENCE_S: Final = 20.0
#: No lease ends while the operations are counted.
LEASE_MS: Final = 3_600_000
JSON_TYPE: Final = {"content-type": "application/json"}


class Trip(msgspec.Struct, kw_only=True):
    """Of one operation: own calls, the files they stand in, and how often each function was called in which file."""

    operation: str
    calls: int
    files: list[str]
    functions: dict[str, int]


class Recorder:
    """Records calls on all threads that were started after `install`."""

    def __init__(self) -> None:
        self._seen: Counter[CodeType] = Counter()
        self._records = False

    def install(self) -> None:
        """Record on this thread, and on those started from now on."""
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        if self._records and event == "call":
            self._seen[frame.f_code] += 1

    @contextmanager
    def recording(self) -> Generator[Counter[str]]:
        """Calls by "file:function" of what runs within this."""
        found: Counter[str] = Counter()
        self._seen = Counter()
        self._records = True
        try:
            yield found
        finally:
            self._records = False
            for code, count in self._seen.items():
                if code.co_filename.startswith(OURS):
                    found[f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_qualname}"] += count


class Client:
    """Asks a broker, one request after the other, on one connection."""

    def __init__(self, port: int, kafka_port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": f"127.0.0.1:{kafka_port}", "acks": "all", "linger.ms": 0}
        )
        self._job: dict[str, Any] = {}

    def prepare(self) -> None:
        """The topics that the operations are about."""
        self._ask("PUT", "/v0/topics/log", {"durability": "fsync"})
        self._ask(
            "PUT",
            "/v0/topics/queue",
            {"type": "queue", "durability": "fsync", "leases_durable": True, "lease_ms": LEASE_MS},
        )
        self._ask("POST", "/v0/topics/log", {"records": [{"data": number} for number in range(100)]})
        jobs = {"records": [{"data": number} for number in range(2 * (WARM + MOST_TRIES))]}
        self._ask("POST", "/v0/topics/queue", jobs)

    def operations(self) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
        """By name: the preparation, and the request itself."""
        one = {"records": [{"data": {"event": "opened", "of": 1}}]}
        return {
            "append": (_nothing, lambda: self._ask("POST", "/v0/topics/log", one)),
            "claim": (_nothing, self._claim),
            "ack": (self._claim, self._ack),
            "produce": (_nothing, self._produce),
            "diff": (_nothing, lambda: self._ask("POST", "/v0/topics/log/diff", {"from_seq": 10, "limit": 10})),
        }

    def _claim(self) -> None:
        answer = self._ask("POST", "/v0/topics/queue/claim", {"node": "worker", "max": 1})
        self._job = answer["claimed"][0]

    def _ack(self) -> None:
        body = {"node": "worker", "seqs": [self._job["$seq"]], "lease_ids": [self._job["lease_id"]]}
        self._ask("POST", "/v0/topics/queue/ack", body)

    def _produce(self) -> None:
        failed: list[Any] = []
        self._producer.produce("log", b"opened", on_delivery=lambda error, _: failed.append(error) if error else None)
        if self._producer.flush(PATIENCE_S) or failed:
            raise RuntimeError(f"The broker did not take a produced record: {failed}")

    def _ask(self, method: str, path: str, body: Any) -> Any:
        self._http.request(method, path, msgspec.json.encode(body), JSON_TYPE)
        response = self._http.getresponse()
        text = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {text.decode()}")
        return msgspec.json.decode(text)


def _nothing() -> None:
    pass


def trip(recorder: Recorder, name: str, first: Callable[[], None], request: Callable[[], None]) -> Trip:
    """The shortest of several."""
    for _ in range(WARM):
        first()
        request()
    best: Counter[str] | None = None
    tries = seen = 0
    while tries < TRIES or (seen < SEEN and tries < MOST_TRIES):
        first()
        time.sleep(QUIET_S)
        with recorder.recording() as found:
            request()
            time.sleep(QUIET_S)
        tries += 1
        if best is None or found.total() < best.total():
            best, seen = found, 0
        seen += found == best
    assert best is not None
    files = sorted({each.partition(":")[0] for each in best})
    return Trip(operation=name, calls=best.total(), files=files, functions=dict(best.most_common()))


async def _serve(directory: Path, recorder: Recorder, wanted: list[str]) -> list[Trip]:
    settings = Settings.model_validate(
        {"data_dir": directory, "port": 0, "kafka_port": 0, "kafka_port_file": directory.parent / "kafka-port"}
    )
    broker = Broker(Engine(str(directory), settings.storage_options()), settings, None)
    server = BrokerServer(build_app(broker), settings, listen(settings.host, 0))
    kafka = bind_port(settings)
    assert kafka is not None
    port_file = settings.kafka_port_file
    assert port_file is not None
    lifecycle = Lifecycle(broker, server, None, kafka.port(broker))
    living = asyncio.create_task(lifecycle.run())
    try:
        while not (broker.engine.ready and port_file.exists()):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(QUIET_S)
        port = int(port_file.read_text())
        return await asyncio.to_thread(_all, Client(server.port, port), recorder, wanted)
    finally:
        lifecycle.stop()
        await living


def _all(client: Client, recorder: Recorder, wanted: list[str]) -> list[Trip]:
    sys.setprofile(None)
    client.prepare()
    operations = client.operations()
    return [trip(recorder, name, *operations[name]) for name in wanted]


def measure(wanted: list[str]) -> list[Trip]:
    """Of each operation that is named. Takes some seconds."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory(prefix="topics-trip-") as parent:
        recorder.install()
        try:
            return uvloop.run(_serve(Path(parent) / "data", recorder, wanted))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # pyright: ignore[reportArgumentType]


OPERATIONS: Final = ("append", "claim", "ack", "produce", "diff")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.trip", description="Count the own calls and files that one request runs through."
    )
    parser.add_argument(
        "operations", nargs="*", metavar="OPERATION", help=f"of {', '.join(OPERATIONS)}; all by default"
    )
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.add_argument("--calls", action="store_true", help="print every function, with how often it was called")
    given = parser.parse_args()
    unknown = [each for each in given.operations if each not in OPERATIONS]
    if unknown:
        parser.error(f"unknown operation {unknown[0]!r}; there are {', '.join(OPERATIONS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = measure(given.operations or list(OPERATIONS))
    if given.json:
        print(json.dumps(msgspec.to_builtins(found), indent=2))
        return
    for each in found:
        print(f"{each.operation:10} {each.calls:4} calls in {len(each.files):3} files")
        if given.calls:
            for name, count in sorted(each.functions.items()):
                print(f"    {count:4}  {name}")


if __name__ == "__main__":
    main()
