"""The clients of `loadtest.killed_cells`: threads that ask, repeat what can be repeated, and note the answers."""

from __future__ import annotations

import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

import msgspec

from loadtest.mixed_ledger import Lease, Stamp, Topic

_PAUSE_S: Final = 0.01
_WAIT_S: Final = 60.0
#: Times of the ledger and of leases may be so far apart.
_SLACK_S: Final = 0.1
_MOST_AT_ONCE: Final = 5
#: Producers wait while a queue has more jobs than this, and look at it again after so many more. Otherwise they would
#: leave the workers more than they can do at the end of a long run.
_MOST_JOBS: Final = 100
_FULL_PAUSE_S: Final = 0.2
_JSON: Final = {"Content-Type": "application/json"}
#: Answers that say that a request was not carried out: it may be repeated.
_AGAIN: Final = frozenset({429, 503})
_numbers = itertools.count()


class Service:
    """The set. `over`: no more is written; `written`: all writes have been answered."""

    def __init__(self, *addresses: tuple[str, int], rest_s: float = 0.0) -> None:
        """`addresses`: of the gateways. Each client stays at one until that one does not answer. `rest_s`: how long a
        client waits after each answer or refusal while `over` is not set."""
        self._rest_s = rest_s
        self.addresses = [*addresses]
        self.over = threading.Event()
        self.written = threading.Event()
        self.answers = 0
        self.cut = 0
        self._lock = threading.Lock()

    def count(self, *, answered: bool) -> None:
        with self._lock:
            self.answers += answered
            self.cut += not answered

    def rest(self) -> None:
        if self._rest_s:
            self.over.wait(self._rest_s)


class Unknown(Exception):
    """A request may have been carried out, or not."""


class Calls:
    """Requests of one thread, on a connection that is kept."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connection: HTTPConnection | None = None
        self._at = next(_numbers)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Until something was done or refused for good: (status, answer). Raises Unknown."""
        while True:
            status, answer = self._once(method, path, body)
            if status not in _AGAIN:
                self._service.count(answered=True)
                self._service.rest()
                return status, answer
            self._service.count(answered=False)
            if answer["error"].get("detail", {}).get("outcome") == "unknown":
                raise Unknown
            time.sleep(_PAUSE_S)
            self._service.rest()

    def repeat(self, method: str, path: str, body: Any = None) -> Any:
        """As `ask`, of a request that may be carried out twice; it must be a success."""
        while True:
            with suppress(Unknown):
                status, answer = self.ask(method, path, body)
                assert status in (200, 201), (method, path, body, status, answer)
                return answer

    def _once(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        sent = False
        try:
            if self._connection is None:
                host, port = self._service.addresses[self._at % len(self._service.addresses)]
                connection = HTTPConnection(host, port, timeout=_WAIT_S)
                connection.connect()
                self._connection = connection
            sent = True
            self._connection.request(
                method, path, None if body is None else msgspec.json.encode(body), {} if body is None else _JSON
            )
            answer = self._connection.getresponse()
            return answer.status, msgspec.json.decode(answer.read())
        except (OSError, HTTPException) as error:
            self._at += 1
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if sent:
                self._service.count(answered=False)
                raise Unknown from error
            return 503, {"error": {}}


def put(calls: Calls, path: str, body: Any) -> None:
    calls.repeat("PUT", path, body)


def lag(calls: Calls, router: str) -> int:
    """Of a router."""
    return calls.repeat("GET", f"/v0/routers/{router}")["lag"]


def waiting_jobs(calls: Calls, path: str) -> int:
    """How many jobs a queue has that are neither acked nor dead."""
    figures = calls.repeat("GET", path)["queue"]
    return sum(figures[each] for each in ("ready", "in_flight", "delayed", "dead_pending"))


def contents(calls: Calls, topic: str) -> dict[int, Stamp]:
    """What a topic holds: seq → stamp."""
    found: dict[int, Stamp] = {}
    at = 0
    while True:
        page = calls.repeat("POST", f"/v0/topics/{topic}/diff", {"from_seq": at, "limit": 1000})
        found |= {record["$seq"]: _stamp(record) for record in page["records"]}
        if page["caught_up"]:
            return found
        at = page["next_from_seq"]


def _stamp(record: Any) -> Stamp:
    writer, number = record["data"]
    return writer, number


class Actor(ABC):
    """A thread of the load."""

    def __init__(self, service: Service, topic: Topic, path: str, name: str, seed: float) -> None:
        self.service = service
        self.topic = topic
        self.path = f"/v0/topics/{path}"
        self.name = name
        self.dice = random.Random(seed)
        self.calls = Calls(service)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    @abstractmethod
    def work(self) -> None: ...


class Producer(Actor):
    """Appends. With keys it repeats until it is answered; without, what has no answer stays open. It fills a queue no
    further than its workers can empty it."""

    def __init__(
        self, service: Service, topic: Topic, path: str, name: str, seed: float, *, keyed: bool, queue: bool = False
    ) -> None:
        super().__init__(service, topic, path, name, seed)
        self._keyed = keyed
        self._queue = queue

    def work(self) -> None:
        number = looked_at = 0
        while not self.service.over.is_set():
            if self._queue and number - looked_at >= _MOST_JOBS:
                if waiting_jobs(self.calls, self.path) > _MOST_JOBS:
                    time.sleep(_FULL_PAUSE_S)
                    continue
                looked_at = number
            count = self.dice.randint(1, _MOST_AT_ONCE)
            stamps = [(self.name, number + each) for each in range(1, count + 1)]
            number += count
            self._append(stamps)
            time.sleep(_PAUSE_S)

    def _append(self, stamps: list[Stamp]) -> None:
        body: dict[str, Any] = {"records": [{"data": stamp} for stamp in stamps], "create": False}
        if self._keyed:
            body["idempotency_key"] = f"{self.name}-{stamps[0][1]}"
            answer = self.calls.repeat("POST", self.path, body)
        else:
            try:
                status, answer = self.calls.ask("POST", self.path, body)
            except Unknown:
                self.topic.open.update(stamps)
                return
            assert status in (200, 201), answer
        self.topic.wrote(answer["first_seq"], stamps)


class Consumer(Actor):
    """Reads with a durable cursor, and commits what it has read before it reads on."""

    def work(self) -> None:
        path = f"{self.path}/consumers/{self.name}"
        self.calls.repeat("PUT", path, {"start": "earliest"})
        while True:
            written = self.service.written.is_set()
            body = {"checkpoint": False, "limit": self.dice.randint(1, 50)}
            answer = self.calls.repeat("POST", f"{path}/read", body)
            assert not answer.get("tombstone"), answer
            seqs = [record["$seq"] for record in answer["records"]]
            if seqs:
                self.calls.repeat("POST", f"{path}/commit", {"seq": seqs[-1]})
                self.topic.saw(self.name, seqs)
            elif written:
                return
            else:
                time.sleep(_PAUSE_S)


class Worker(Actor):
    """Claims jobs and does something with each. The last tasks are done without leaving any."""

    def work(self) -> None:
        attempt = 0
        while True:
            written = self.service.written.is_set()
            attempt += 1
            lease_ms = self.dice.choice((500, 2000, 5000))
            asked = time.monotonic()
            body = {
                "node": self.name,
                "max": self.dice.randint(1, _MOST_AT_ONCE),
                "lease_ms": lease_ms,
                "attempt_key": f"{self.name}/{attempt}",
            }
            answer = self.calls.repeat("POST", f"{self.path}/claim", body)
            now = time.monotonic()
            until = asked + lease_ms / 1000 - _SLACK_S
            for job in answer["claimed"]:
                lease = Lease(job["lease_id"], asked, now, until)
                self.topic.leases.setdefault(job["$seq"], []).append(lease)
                self._do(job["$seq"], job["data"][1], lease, lease_ms, hurry=written)
            if not answer["claimed"]:
                if written and self._empty():
                    return
                time.sleep(_PAUSE_S)

    def _empty(self) -> bool:
        return waiting_jobs(self.calls, self.path) == 0

    def _do(self, seq: int, number: int, lease: Lease, lease_ms: int, *, hurry: bool) -> None:
        luck = self.dice.random()
        if number % 9 == 0:  # nobody can do it
            self._settle("nack", seq, lease, delay_ms=self.dice.choice((0, 20)))
        elif luck < 0.1 and not hurry:
            return  # it is left until its lease ends
        elif luck < 0.2:
            self._settle("nack", seq, lease, delay_ms=self.dice.choice((0, 50)))
        elif luck < 0.4:
            sent = time.monotonic()
            if self._settle("extend", seq, lease, lease_ms=lease_ms):
                lease.until = max(lease.until, sent + lease_ms / 1000 - _SLACK_S)
            self._settle("ack", seq, lease)
        else:
            self._settle("ack", seq, lease)

    def _settle(self, what: str, seq: int, lease: Lease, **more: Any) -> bool:
        """Repeated until it is answered. Whether it was done for certain, by one of the requests."""
        if what != "extend":
            lease.until = min(lease.until, time.monotonic())
        body = {"node": self.name, "seqs": [seq], "lease_ids": [lease.id], **more}
        unsure = False
        while True:
            try:
                status, answer = self.calls.ask("POST", f"{self.path}/{what}", body)
            except Unknown:
                unsure = True
                continue
            assert status == 200, answer
            done = answer[f"{what}ed"] == 1
            if what == "ack":
                if done:
                    self.topic.done[seq] += 1
                    self.topic.done_at[seq] = time.monotonic()
                elif unsure:
                    self.topic.perhaps_done.add(seq)
            return done
