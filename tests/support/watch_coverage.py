"""What a watcher was told of each topic, compared with the topic: every seq, or that it is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

#: An event of a stream. Its data has no line break.
EVENT = re.compile(rb"event: (\S+)\n(?:id: (\S+)\n)?data: (.*)\n\n")


class Event(NamedTuple):
    """The event of a stream, or the message of a WebSocket as an event with its name."""

    name: str
    id: str | None
    data: dict[str, Any]


class Chunked:
    """Decodes an answer in chunks (RFC 9112 §7.1) as it arrives at its socket. A large event is several chunks."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._is_head = True
        self._left = 0

    def take(self, data: bytes) -> bytes:
        """The content in these bytes."""
        self._raw += data
        if self._is_head:
            head, end, rest = bytes(self._raw).partition(b"\r\n\r\n")
            if not end:
                return b""
            assert b"transfer-encoding: chunked" in head.lower()
            self._is_head = False
            self._raw[:] = rest
        found = bytearray()
        while self._raw:
            if self._left > 2:
                part = self._raw[: self._left - 2]
                found += part
                self._left -= len(part)
                del self._raw[: len(part)]
            elif self._left:  # the line end after a chunk
                gone = min(self._left, len(self._raw))
                self._left -= gone
                del self._raw[:gone]
            else:
                size, end, _ = bytes(self._raw[:32]).partition(b"\r\n")
                if not end:
                    break
                self._left = int(size, 16) + 2
                del self._raw[: len(size) + 2]
        return bytes(found)


def events_of(received: bytearray) -> Iterator[Event]:
    """The complete events at the beginning, which are removed."""
    end = received.rfind(b"\n\n")
    if end < 0:
        return
    end += 2
    whole = bytes(received[:end])
    del received[:end]
    for found in EVENT.finditer(whole):
        name, id = found[1].decode().replace("-", "_"), found[2]
        yield Event(name, id.decode() if id is not None else None, json.loads(found[3]))


class Coverage:
    """How far a watcher of topics that nobody deletes from has come, and over which gaps.

    `take` fails if something is left out, comes again, or comes too early.
    """

    def __init__(self, **at: int) -> None:
        self.at = at
        self.records = dict.fromkeys(at, 0)
        self.gaps: dict[str, list[tuple[int, int]]] = {name: [] for name in at}
        self.last_id: str | None = None

    def take(self, event: Event) -> None:
        if event.id is not None:
            self.last_id = event.id
        name, data = event.data.get("topic", ""), event.data
        if event.name == "record":
            seqs = [record["$seq"] for record in data["records"]]
            due = list(range(self.at[name] + 1, data["to_seq"] + 1))
            assert seqs == due, f"{name}: {seqs} where {due} were due"
            self.at[name] = data["to_seq"]
            self.records[name] += len(seqs)
        elif event.name == "tombstone":
            assert data["gap_from"] == self.at[name] + 1, (name, self.at[name], data)
            self.gaps[name].append((data["gap_from"], data["gap_to"]))
            self.at[name] = data["gap_to"]
