"""A realistic mix on a running broker: producers, consumers, workers and watchers, with a ledger that is checked.

    locust -f loadtest/locustfile.py --headless -u 60 -r 20 -t 60s --host http://127.0.0.1:4000 --html report.html

Every run creates new topics and deletes them at the end unless --keep is given. When the load is over, every reader
reads to the end, and the acknowledged, delivered and acked records are compared with those in the broker. The verdict
is printed, is a row of the report, and decides the exit code together with the failed requests. Only one process is
possible: the ledger is in its memory. With --locust-key, or LOCUST_KEY, requests carry that API key.
"""

# Much of locust has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import gevent
from locust import FastHttpUser, between, events, task
from locust.env import Environment
from locust.runners import LocalRunner

from loadtest.mixed_ledger import Stamp, Topic, Verdict, judge

_JSON = {"Content-Type": "application/json"}
_PAGE = 1000
_RETRY_S = 0.2
#: How long a worker keeps its jobs at most: those of one that vanished come back within a run.
_LEASE_MS = 3000


class Mix:
    """The topics of this run and their ledger."""

    def __init__(self) -> None:
        self.ledger: dict[str, Topic] = {}
        self.logs: list[str] = []
        self.queue = ""
        self.batch = 1
        self.headers = dict(_JSON)
        self.consumers: list[Consumer] = []
        self.watchers: list[Watcher] = []
        self.verdict: Verdict | None = None


MIX = Mix()


def _ask(environment: Environment, method: str, path: str, body: object = None) -> Any:
    """A request that is in no statistics."""
    where = urlsplit(environment.host or "")
    connection = HTTPConnection(where.hostname or "127.0.0.1", where.port or 80, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), MIX.headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path} was answered {answer.status}: {text[:200]!r}")
    return json.loads(text)


class Person(FastHttpUser):
    """A named client of the broker."""

    abstract = True
    connection_timeout = 10.0
    network_timeout = 40.0
    _numbers = count(1)

    def on_start(self) -> None:
        self.name = f"{type(self).__name__.lower()}-{next(Person._numbers)}"

    def post(self, path: str, body: object, label: str, **headers: str) -> Any:
        """The answer; None when there was none, or an error. Either is counted as a failure."""
        text = json.dumps(body, separators=(",", ":"))
        with self.client.post(path, text, headers=MIX.headers | headers, name=label, catch_response=True) as answer:
            if answer.status_code == 200:
                return answer.json()
            answer.failure(f"{answer.status_code}: {(answer.text or '')[:200]}")
            return None


class _Writer(Person):
    """Appends numbered records, each write under a key with which it is repeated until there is an answer."""

    abstract = True
    tag: str | None = None

    def on_start(self) -> None:
        super().on_start()
        self._next = 1

    def write(self, name: str, size: int, label: str) -> None:
        topic = MIX.ledger[name]
        stamps: list[Stamp] = [(self.name, number) for number in range(self._next, self._next + size)]
        self._next += size
        records = [{"data": {"by": by, "n": number, "text": "x" * random.randrange(20, 200)}} for by, number in stamps]
        topic.open.update(stamps)
        key = uuid.uuid4().hex
        while (
            answer := self.post(f"/v0/topics/{name}", {"records": records}, label, **{"Idempotency-Key": key})
        ) is None:
            gevent.sleep(_RETRY_S)
        topic.wrote(answer["first_seq"], stamps)
        topic.open.difference_update(stamps)


class Producer(_Writer):
    """A service that appends events: usually one at a time, sometimes many."""

    weight = 8
    wait_time = between(0.005, 0.05)

    @task(4)
    def one(self) -> None:
        self.write(random.choice(MIX.logs), 1, "append 1")

    @task(1)
    def many(self) -> None:
        self.write(random.choice(MIX.logs), MIX.batch, "append many")


class Dispatcher(_Writer):
    """Puts jobs into the queue."""

    weight = 2
    wait_time = between(0.01, 0.1)

    @task
    def jobs(self) -> None:
        self.write(MIX.queue, random.randrange(1, 20), "append jobs")


class Consumer(Person):
    """Reads one topic continuously; the broker keeps its cursor.

    A read whose answer was lost is repeated with the same attempt_key, so that no record is skipped.
    """

    weight = 3
    wait_time = between(0.0, 0.05)

    def on_start(self) -> None:
        super().on_start()
        self.topic = random.choice(MIX.logs)
        self.path = f"/v0/topics/{self.topic}/consumers/{self.name}"
        self.attempt = uuid.uuid4().hex
        self.made = self.client.put(self.path, "{}", headers=MIX.headers, name="consumer made").status_code == 201
        if self.made:
            MIX.consumers.append(self)

    @task
    def read(self) -> None:
        if not self.made:
            return
        body = {"limit": 500, "wait_ms": 1000, "attempt_key": self.attempt}
        answer = self.post(f"{self.path}/read", body, "consume")
        if answer is not None:
            self.took(answer)

    def took(self, answer: dict[str, Any]) -> bool:
        """Note the records of an answer; returns whether there were any."""
        self.attempt = uuid.uuid4().hex
        MIX.ledger[self.topic].saw(self.name, [each["$seq"] for each in answer["records"]])
        return bool(answer["records"])

    def read_to_the_end(self, environment: Environment) -> None:
        more = True
        while more:
            more = self.took(
                _ask(environment, "POST", f"{self.path}/read", {"limit": _PAGE, "attempt_key": self.attempt})
            )


class Worker(Person):
    """Claims jobs and acks them; some fail, and now and then the worker disappears with its jobs."""

    weight = 4
    wait_time = between(0.0, 0.05)

    @task
    def work(self) -> None:
        wanted = {"node": self.name, "max": 20, "wait_ms": 1000, "lease_ms": _LEASE_MS}
        answer = self.post(f"/v0/topics/{MIX.queue}/claim", wanted, "claim")
        jobs: list[dict[str, Any]] = answer["claimed"] if answer else []
        if not jobs or random.random() < 0.01:
            return
        gevent.sleep(random.uniform(0.0, 0.02))
        failed = [job for job in jobs if random.random() < 0.05]
        done = [job for job in jobs if job not in failed]
        if failed:
            self.post(f"/v0/topics/{MIX.queue}/nack", self._named(failed), "nack")
        if done:
            self._ack(done)

    def _named(self, jobs: list[dict[str, Any]]) -> dict[str, Any]:
        seqs, leases = [job["$seq"] for job in jobs], [job["lease_id"] for job in jobs]
        return {"node": self.name, "seqs": seqs, "lease_ids": leases}

    def _ack(self, jobs: list[dict[str, Any]]) -> None:
        queue = MIX.ledger[MIX.queue]
        seqs = {job["$seq"] for job in jobs}
        queue.perhaps_done |= seqs
        answer = self.post(f"/v0/topics/{MIX.queue}/ack", self._named(jobs), "ack")
        if answer is not None:
            queue.perhaps_done -= seqs
            queue.done.update(seqs - set(answer["skipped"]))


class Watcher(Person):
    """Follows one topic as server-sent events, from its beginning on; comes back to where it was when cut off."""

    weight = 3
    wait_time = between(0.0, 0.1)

    def on_start(self) -> None:
        super().on_start()
        self.topic = random.choice(MIX.logs)
        self.from_seq = 0
        self.pushed = 0
        MIX.watchers.append(self)

    @task
    def follow(self) -> None:
        session = self.post("/v0/watch", {"topics": {self.topic: {"from_seq": self.from_seq}}}, "watch")
        if session is None:
            return
        url = session["stream_url"]
        with self.client.get(url, headers=MIX.headers, name="stream", stream=True, catch_response=True) as stream:
            for event, data in _events(stream.stream):
                if event == "record":
                    before = self.from_seq
                    self.took(json.loads(data))
                    self.pushed += self.from_seq - before

    def took(self, page: dict[str, Any]) -> bool:
        """Note what was pushed, or read; whether it was anything."""
        seqs = [each["$seq"] for each in page["records"]]
        MIX.ledger[self.topic].saw(self.name, seqs)
        self.from_seq = max(self.from_seq, *seqs, 0)
        return bool(seqs)

    def read_to_the_end(self, environment: Environment) -> None:
        wanted = {"from_seq": self.from_seq, "limit": _PAGE}
        while self.took(_ask(environment, "POST", f"/v0/topics/{self.topic}/diff", wanted)):
            wanted["from_seq"] = self.from_seq


def _events(lines: Any) -> Iterator[tuple[str, str]]:
    """(event, data) of a stream of server-sent events, until it ends."""
    kind = ""
    while line := lines.readline(b"\n"):
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            yield kind, line[6:].decode()


# -- a run -------------------------------------------------------------------------------------------------------------


@events.init_command_line_parser.add_listener
def _options(parser: Any) -> None:
    parser.add_argument("--topics", type=int, default=4, help="Topics that events are appended to")
    parser.add_argument("--durability", default="disk", help="Class of all topics: fsync, disk, memory")
    parser.add_argument("--batch", type=int, default=50, help="Records of the large writes")
    parser.add_argument("--locust-key", default="", env_var="LOCUST_KEY", is_secret=True, help="API key of the broker")
    parser.add_argument("--keep", action="store_true", help="Leave the topics of the run behind")


@events.test_start.add_listener
def _begin(environment: Environment, **_: object) -> None:
    if not isinstance(environment.runner, LocalRunner):
        raise SystemExit("The ledger is in the memory of one process: run without --processes, --master and --worker.")
    options: Any = environment.parsed_options
    MIX.__init__()
    if options.locust_key:
        MIX.headers["Authorization"] = f"Bearer {options.locust_key}"
    run = uuid.uuid4().hex[:8]
    MIX.batch = options.batch
    MIX.logs = [f"mix-{run}-events-{number}" for number in range(options.topics)]
    MIX.queue = f"mix-{run}-jobs"
    MIX.ledger = {name: Topic() for name in [*MIX.logs, MIX.queue]}
    for name in MIX.ledger:
        kind = "queue" if name == MIX.queue else "log"
        _ask(environment, "PUT", f"/v0/topics/{name}", {"durability": options.durability, "type": kind})


@events.test_stop.add_listener
def _end(environment: Environment, **_: object) -> None:
    if not MIX.ledger:
        return
    pushed = sum(watcher.pushed for watcher in MIX.watchers)
    for reader in [*MIX.consumers, *MIX.watchers]:
        reader.read_to_the_end(environment)
    held = {name: _held(environment, name) for name in MIX.ledger}
    verdict = MIX.verdict = judge(MIX.ledger, held, queues=[MIX.queue])
    figures = (
        f"lost {verdict.lost}, doubled {verdict.doubled}, out of order {verdict.disordered} of"
        f" {verdict.acknowledged} acknowledged, {verdict.delivered} delivered ({pushed} pushed),"
        f" {verdict.jobs_done} jobs done, {verdict.unanswered} unanswered"
    )
    print("\n".join(["", f"Ledger: {figures}", *verdict.problems, ""]))
    wrong = None if verdict.holds else AssertionError("; ".join(verdict.problems))
    environment.events.request.fire(
        request_type="LEDGER", name=figures, response_time=0, response_length=0, exception=wrong, context={}
    )
    if not environment.parsed_options.keep:  # pyright: ignore[reportOptionalMemberAccess]
        for name in MIX.ledger:
            _ask(environment, "DELETE", f"/v0/topics/{name}")


def _held(environment: Environment, name: str) -> dict[int, Stamp]:
    """seq → stamp of all records in the topic. Raises RuntimeError for an announced loss: no loss is expected."""
    found: dict[int, Stamp] = {}
    from_seq, more = 0, True
    while more:
        page = _ask(environment, "POST", f"/v0/topics/{name}/diff", {"from_seq": from_seq, "limit": _PAGE})
        if page["tombstone"] is not None:
            raise RuntimeError(f"{name} announces a loss: {page['tombstone']}")
        found |= {each["$seq"]: (each["data"]["by"], each["data"]["n"]) for each in page["records"]}
        from_seq, more = page["next_from_seq"], not page["caught_up"]
    return found
