"""One walk through everything that a client does with a broker, the same for every library and version.

`walk(client)` asserts on the way and prints each finished step. It needs only the standard library, so that it runs in
an environment without this project. The programs type their libraries as `Any`: no type fits all versions.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

#: key, value, headers, create time in ms.
Record: TypeAlias = tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]
T = TypeVar("T")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW = 1_700_000_000_000
PATIENCE_S = 40.0
PARTITIONS = 4
IN_TURN = 50


class Member(Protocol):
    """A member of a group, or a consumer with manually assigned partitions. Used by one thread at a time."""

    def poll(self) -> list[tuple[int, int, Record]]:
        """(partition, offset, record) of the records within about a tenth of a second; also does the group's work."""
        ...

    def assigned(self) -> set[int]: ...
    def assign(self, partition: int, offset: int) -> None: ...
    def seek(self, partition: int, offset: int) -> None: ...
    def commit(self, partition: int, offset: int) -> None: ...
    def committed(self, partition: int) -> int | None: ...
    def offset_at(self, partition: int, stamp: int) -> int | None: ...
    def close(self) -> None: ...


class Client(Protocol):
    """One library."""

    #: Whether this version has an idempotent producer.
    idempotent: bool

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None: ...
    def grow(self, topic: str, partitions: int) -> None: ...
    def delete(self, topic: str) -> None: ...
    def topics(self) -> set[str]: ...
    def partitions(self, topic: str) -> int: ...
    def setting(self, topic: str, name: str) -> str | None: ...
    def produce(self, topic: str, partition: int, records: list[Record], codec: str, idempotent: bool) -> list[int]:
        """Returns their offsets."""
        ...

    def member(self, topic: str, group: str | None) -> Member: ...


class DrivenClient:
    """A member in a separate thread, which polls all the time and runs given calls in between."""

    def __init__(self, make: Callable[[], Member]) -> None:
        self.found: list[tuple[int, int, Record]] = []
        self.assigned: set[int] = set()
        self._make = make
        self._orders: queue.Queue[tuple[Callable[[Member], Any], queue.Queue[Any]]] = queue.Queue()
        self._stop = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def do(self, order: Callable[[Member], T]) -> T:
        answer: queue.Queue[Any] = queue.Queue()
        self._orders.put((order, answer))
        until(lambda: not answer.empty() or self._failure is not None, lambda: "no answer")
        assert not answer.empty(), self._failure
        result = answer.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def until(self, condition: Callable[[], bool]) -> None:
        until(lambda: self._failure is not None or condition(), self._told)
        assert self._failure is None, self._failure

    def _told(self) -> str:
        return f"assigned {self.assigned}, {len(self.found)} records"

    def close(self) -> None:
        self._stop = True
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            member = self._make()
            while not self._stop:
                self.found += member.poll()
                self.assigned = member.assigned()
                while not self._orders.empty():
                    order, answer = self._orders.get()
                    try:
                        answer.put(order(member))
                    except Exception as error:
                        answer.put(error)
            member.close()
        except BaseException as error:
            self._failure = error
            raise


def until(condition: Callable[[], bool], told: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)


def records(name: str, count: int) -> list[Record]:
    """With and without keys and values, text and bytes; one create time for each."""
    found: list[Record] = []
    for number in range(count):
        key = (None, f"{name}{number}".encode(), b"\xff\x00key")[number % 3]
        value = (f"{name} {number}".encode(), b'{"n":%d}' % number, b"", b"\x00\xfe")[number % 4]
        headers = [("h", b"text"), ("h", b"\x80raw")] if number % 5 == 0 else []
        found.append((key, value, headers, NOW + number))
    return found


def walk(client: Client) -> None:
    """All steps, in this order."""
    for step in (administer, produce, produce_idempotently, read_and_seek, share, commit_and_resume):
        step(client)
        print(step.__name__, flush=True)


def administer(client: Client) -> None:
    client.create("walk", 2, {"retention.ms": "86400000", "max.message.bytes": "100000"})
    client.create("doomed", 1, {})
    until(lambda: {"walk", "doomed"} <= client.topics())
    assert client.setting("walk", "retention.ms") == "86400000"
    assert client.setting("walk", "max.message.bytes") == "100000"
    client.grow("walk", PARTITIONS)
    assert client.partitions("walk") == PARTITIONS
    client.delete("doomed")
    until(lambda: "doomed" not in client.topics())


def produce(client: Client) -> None:
    """Write to partition 0: IN_TURN records with each codec, one after the other."""
    for turn, codec in enumerate(CODECS):
        offsets = client.produce("walk", 0, records(codec, IN_TURN), codec, idempotent=False)
        assert offsets == [*range(turn * IN_TURN, (turn + 1) * IN_TURN)], (codec, offsets)


def produce_idempotently(client: Client) -> None:
    """Write to partition 1 with an idempotent producer, if the library has one. It is replaced by a new one in
    between."""
    for turn in range(2):
        offsets = client.produce("walk", 1, records(f"i{turn}", 500), "none", idempotent=client.idempotent)
        assert offsets == [*range(turn * 500, (turn + 1) * 500)], offsets


def read_and_seek(client: Client) -> None:
    sent = [record for codec in CODECS for record in records(codec, IN_TURN)]
    reader = DrivenClient(lambda: client.member("walk", None))
    reader.do(lambda member: member.assign(0, 0))
    reader.until(lambda: len(reader.found) >= len(sent))
    assert [offset for _, offset, _ in reader.found] == [*range(len(sent))]
    for (_, offset, found), wanted in zip(reader.found, sent, strict=True):
        assert found == wanted, (offset, found, wanted)
    reader.do(lambda member: (reader.found.clear(), member.seek(0, 33)))
    reader.until(lambda: len(reader.found) >= len(sent) - 33)
    assert reader.found[0] == (0, 33, sent[33])
    assert reader.do(lambda member: member.offset_at(0, NOW + 7)) == 7
    assert reader.do(lambda member: member.offset_at(0, NOW)) == 0
    assert reader.do(lambda member: member.offset_at(0, NOW + 1_000_000)) is None
    reader.close()


def share(client: Client) -> None:
    """One member has all partitions, then two have some each, then the remaining one has all again."""
    everything = set(range(PARTITIONS))
    there = len(CODECS) * IN_TURN + 1000
    first = DrivenClient(lambda: client.member("walk", "shared"))
    first.until(lambda: first.assigned == everything)
    first.until(lambda: len({each[:2] for each in first.found}) == there)
    second = DrivenClient(lambda: client.member("walk", "shared"))
    until(
        lambda: bool(first.assigned and second.assigned) and first.assigned | second.assigned == everything,
        lambda: f"{first.assigned} and {second.assigned}",
    )
    until(lambda: not first.assigned & second.assigned)
    for partition in (2, 3):
        client.produce("walk", partition, records("more", 20), "none", idempotent=False)
    both = lambda: {each[:2] for each in (*first.found, *second.found) if each[0] in (2, 3)}  # noqa: E731
    until(lambda: len(both()) == 40, lambda: f"{len(both())} of 40")
    second.close()
    first.until(lambda: first.assigned == everything)
    first.close()


def commit_and_resume(client: Client) -> None:
    first = DrivenClient(lambda: client.member("walk", "resumed"))
    first.until(lambda: len({each[:2] for each in first.found if each[0] == 1}) == 1000)
    assert first.do(lambda member: member.committed(1)) is None
    first.do(lambda member: member.commit(1, 700))
    assert first.do(lambda member: member.committed(1)) == 700
    first.close()
    again = DrivenClient(lambda: client.member("walk", "resumed"))
    again.until(lambda: len({each[:2] for each in again.found if each[0] == 1}) >= 300)
    assert [offset for partition, offset, _ in again.found if partition == 1] == [*range(700, 1000)]
    again.close()
