"""Events for watchers, as parts of an event stream and as WebSocket messages. Pure.

An event is rendered once for all receivers: its JSON, its message, and its bytes for streams of this topic alone,
which have the same id.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from broker.content import Shape, render
from broker.live import cursor
from broker.live.cursor import Position
from storage.records import ReadResult, Tombstone

_LINE_BREAKS: Final = bytes.maketrans(b"\r\n", b"  ")
#: The key that names the kind of a message. A client gets the key that it uses itself.
OP: Final = "op"
TYPE: Final = "type"
#: For clients that have used neither so far.
EITHER: Final = "either"

#: The reason of a gap that exists when a stream opens.
TOO_OLD: Final = "from_seq_too_old"
RECREATED: Final = "recreated"


class Kind(enum.Enum):
    """What happened; the value is the name of the event."""

    RECORD = b"record"
    TOMBSTONE = b"tombstone"
    CAUGHT_UP = b"caught-up"
    TOPIC_DELETED = b"topic-deleted"


class Event:
    """An event in a topic, and the position after it."""

    __slots__ = ("_alone", "_messages", "data", "kind", "position")

    def __init__(self, kind: Kind, data: bytes, position: Position) -> None:
        self.kind = kind
        self.data = data
        self.position = position
        self._alone: bytes | None = None
        self._messages: dict[str, str] | None = None

    def with_id(self, id: bytes) -> bytes:
        """The bytes of the event with that id."""
        data = self.data
        # between tokens, where a space means the same; here a newline would end a line of the event
        if b"\n" in data or b"\r" in data:
            data = self.data = data.translate(_LINE_BREAKS)
        return b"event: %b\nid: %b\ndata: %b\n\n" % (self.kind.value, id, data)

    def alone(self, key: bytes) -> bytes:
        """The bytes for a stream of this topic only."""
        if self._alone is None:
            self._alone = self.with_id(cursor.encode([cursor.entry(key, self.position)]))
        return self._alone

    def message(self, word: str) -> str:
        """The text of a WebSocket message; `word`: OP or TYPE."""
        if self._messages is None:
            self._messages = {}
        found = self._messages.get(word)
        if found is None:
            name = self.kind.value.replace(b"-", b"_")
            found = self._messages[word] = (b'{"%b":"%b",%b' % (word.encode(), name, self.data[1:])).decode()
        return found


def records(
    topic: bytes, result: ReadResult, shape: Shape, from_seq: int, epoch: int, text: bytes | None = None
) -> Event | None:
    """`topic` is the name as JSON, followed by the partition (see `render.place`); `from_seq` is the position
    before; `text` the records, if they are rendered already.

    None: there is nothing to send.
    """
    if not result.records and not result.corrupt_seqs:
        return None
    if text is None:
        text = render.records(result.records, shape)
    data = b'{"topic":%b,"records":[%b],"from_seq":%d,"to_seq":%d,"head_seq":%d%b}' % (
        topic,
        text,
        from_seq,
        result.next_from_seq,
        result.head_seq,
        b',"corrupt_seqs":%b' % msgspec.json.encode(result.corrupt_seqs) if result.corrupt_seqs else b"",
    )
    return Event(Kind.RECORD, data, Position(epoch, result.next_from_seq))


def tombstone(topic: bytes, gap: Tombstone, *, opening: bool, epoch: int) -> Event:
    """The gap; `opening`: it existed when the stream opened."""
    data = b'{"topic":%b,"reason":%b,"gap_from":%d,"gap_to":%d,"earliest_seq":%d,"head_seq":%d}' % (
        topic,
        render.quoted(TOO_OLD if opening and gap.reason != RECREATED else gap.reason),
        gap.gap_from,
        gap.gap_to,
        gap.earliest_seq,
        gap.head_seq,
    )
    return Event(Kind.TOMBSTONE, data, Position(epoch, gap.gap_to))


def caught_up(topic: bytes, head_seq: int, position: Position) -> Event:
    """No more records: what follows is live."""
    return Event(Kind.CAUGHT_UP, b'{"topic":%b,"head_seq":%d}' % (topic, head_seq), position)


def topic_deleted(topic: bytes, head_seq: int, position: Position) -> Event:
    data = b'{"topic":%b,"head_seq":%d,"reason":"deleted"}' % (topic, head_seq)
    return Event(Kind.TOPIC_DELETED, data, position)


def message(word: str, kind: str, request_id: msgspec.Raw | None = None, **fields: object) -> str:
    """An answer to a WebSocket command; `word`: OP, TYPE or EITHER; `request_id` is returned unchanged."""
    named: dict[str, object] = {OP: kind, TYPE: kind} if word == EITHER else {word: kind}
    if request_id is not None:
        named["request_id"] = request_id
    return msgspec.json.encode({**named, **fields}).decode()
