"""A scenario: one kind of load, as a value, and the bytes of its requests."""

from __future__ import annotations

from operator import add

import msgspec

ID_DIGITS = 12
#: Stands for the number of a write in the template of its request; as long as the number is.
PLACEHOLDER = b"@" * ID_DIGITS
PRELOAD_BATCH = 1000


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One load. `rate` is requests a second, 0 = as fast as the answers come (closed loop)."""

    kind: str = "append"
    connections: int = 64
    seconds: float = 10.0
    warmup_s: float = 1.0
    batch: int = 100
    durability: str = "fsync"
    record_bytes: int = 100
    topics: int = 1
    rate: float = 0.0
    #: Requests due longer ago than this are not sent: their clients would have given up. 0 = all are sent.
    give_up_s: float = 0.0
    preload: int = 100_000
    seqs: bool = True
    #: Where readers must find the records: tail, sealed or cold (see `places`); "" = anywhere.
    place: str = ""
    #: Refuse the figure if flusher or snapshots did no work meanwhile (see `proof`).
    steady: bool = False
    #: Number of different tags, given to the records in turn; 0: records have no tag.
    tags: int = 0
    #: Of each topic. Above 1, each connection writes to all of them in turn, by number.
    partitions: int = 1
    #: Number of the first topic, so that two concurrent loads can use different topics.
    first_topic: int = 0

    @property
    def name(self) -> str:
        """Short, unique among the scenarios of a table, fit for a file name."""
        if self.kind == "read":
            return f"diff-{self.batch}" + (f"-{self.place}" if self.place else "") + self._paced
        name = f"append-{self.durability}-{self.batch}-{self.connections}c"
        name += f"-{self.topics}t" if self.topics > 1 else ""
        return name + ("-steady" if self.steady else "") + self._paced

    @property
    def _paced(self) -> str:
        return f"-{self.rate:g}ps" if self.rate else ""

    @property
    def topic_names(self) -> list[str]:
        """The topics that the connections are spread over."""
        return [f"load-{self.first_topic + index}" for index in range(self.topics)]


def record(size_bytes: int, index: int) -> bytes:
    """JSON of one record with exactly this many bytes (or the fewest possible): write number, index, text."""
    head = b'{"write":"%b","index":%d,"text":"' % (PLACEHOLDER, index)
    return head + b"x" * max(0, size_bytes - len(head) - 2) + b'"}'


def append_body(batch: int, record_bytes: int, tags: int = 0) -> bytes:
    """The body of a write, PLACEHOLDER standing for its number."""
    records = [b'{"data":%b' % record(record_bytes, index) for index in range(batch)]
    ends = [b',"tag":"%b"}' % tag(index % tags).encode() if tags else b"}" for index in range(batch)]
    return b'{"records":[%b]}' % b",".join(map(add, records, ends))


def tag(number: int) -> str:
    """One of the tags that records have."""
    return f"device-{number}"


def numbered(template: bytes, number: int) -> bytes:
    """The request or body of the write `number`."""
    return template.replace(PLACEHOLDER, b"%012d" % number)


def request(method: str, path: str, body: bytes, host: str) -> bytes:
    """A whole HTTP/1.1 request."""
    return (b"%b %b HTTP/1.1\r\nHost: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b") % (
        method.encode(),
        path.encode(),
        host.encode(),
        len(body),
        body,
    )


def append_request(scenario: Scenario, topic: str, host: str, partition: int = 0) -> bytes:
    """A write to `topic`, PLACEHOLDER standing for its number."""
    query = [] if scenario.seqs else ["return_seqs=false"]
    query += [f"partition={partition}"] if scenario.partitions > 1 else []
    path = f"/v0/topics/{topic}" + ("?" + "&".join(query) if query else "")
    return request("POST", path, append_body(scenario.batch, scenario.record_bytes, scenario.tags), host)


def redis_request(scenario: Scenario, stream: str) -> bytes:
    """The records of an `append_request` as Redis commands."""
    start = encoded(b"XADD", stream.encode(), b"*", b"d", b"")[: -len(b"$0\r\n\r\n")]
    records = [record(scenario.record_bytes, index) for index in range(scenario.batch)]
    return b"".join(b"%b$%d\r\n%b\r\n" % (start, len(each), each) for each in records)


#: First message of a NATS client, % is its answer subject. With no_responders the server also answers a request that
#: has no receiver.
NATS_CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\nSUB %b 1\r\n'
)


def nats_request(scenario: Scenario, stream: str, inbox: str) -> bytes:
    """The records of an `append_request` as messages to a stream that acknowledges each."""
    return b"".join(
        nats_publish(stream, inbox, record(scenario.record_bytes, index)) for index in range(scenario.batch)
    )


def nats_publish(subject: str, inbox: str, payload: bytes) -> bytes:
    """One message, to be answered at `inbox`."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), inbox.encode(), len(payload), payload)


def encoded(*words: bytes) -> bytes:
    """A command as RESP."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def read_requests(scenario: Scenario, topic: str, host: str) -> list[bytes]:
    """Reads that step through the preloaded records, `batch` records at a time."""
    return [
        request(
            "POST",
            f"/v0/topics/{topic}/diff",
            b'{"from_seq":%d,"limit":%d,"max_batch_bytes":8388608}' % (seq, scenario.batch),
            host,
        )
        for seq in range(0, max(1, scenario.preload - scenario.batch + 1), scenario.batch)
    ]
