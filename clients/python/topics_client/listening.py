"""Records of a topic's partitions that the broker pushes: one session, its stream, and its events. No I/O.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

import enum
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from topics_client import answers
from topics_client.calls import ReadOptions, getting, sending
from topics_client.errors import UnexpectedAnswer
from topics_client.values import Watched
from topics_client.watching import Session
from topics_client.wire import Call, Replay, Reply, Request
from topics_client.working import EventParser

#: Options of a read that a watch has too.
_SHARED = frozenset(
    {"limit", "max_batch_bytes", "node", "include_tags", "include_meta", "include_data", "skip_corrupt", "partition"}
)
#: A stream that ended before this time did not work. After this many of these, the reader's network has no streams.
_BRIEF_S, _MOST_FAILURES = 1.0, 3


class Listen(NamedTuple):
    """A step: open the stream. Its value is None."""

    request: Request


class Stream(enum.Enum):
    """A step with the stream that was opened last. The value of PIECE is the received bytes, None at the end."""

    PIECE = "piece"
    CLOSE = "close"


class Position(NamedTuple):
    """The position in a partition: everything up to `seq`, of the topic with that epoch."""

    epoch: int
    seq: int


class Listening:
    """Whether and how records are pushed to a reader that has read all stored ones.

        is_possible            False: hold reads instead
        session(...), begin    makes a session, if there is none
        open(positions)        the request for its events, from where the reader is
        feed(piece)            the events that are whole
        closed(), broken()     the stream has been closed by the reader; did not work, or has ended

    A stream continues at the positions of the reader, not where an earlier one ended.
    """

    def __init__(self, topic: str, options: ReadOptions, now: Callable[[], float]) -> None:
        self._topic = topic
        self._options: dict[str, Any] = {"include_tags": True, **options}
        self._options.pop("partition", None)
        self._now = now
        self.is_possible = _SHARED.issuperset(name for name, value in options.items() if value is not None)
        self.is_open = False
        self._url: str | None = None
        self._opened_s = 0.0
        self._had_piece = False
        self._failures = 0
        self._parser = EventParser()

    @property
    def has_session(self) -> bool:
        """Whether there is a session, as far as is known."""
        return self._url is not None

    def session(self, partitions: list[int]) -> Call[None]:
        """Make a session for these partitions. Not repeated automatically: the reader can do without it."""
        which: dict[str, Any] = {"partitions": partitions} if partitions != [0] else {}
        fields = {name: value for name, value in self._options.items() if value is not None}
        request = sending("POST", "/v0/watch", {**fields, "topics": {self._topic: which}}, replay=Replay.NEVER)
        return Call(request=request, parse=self._begin)

    def _begin(self, reply: Reply) -> None:
        self._url = msgspec.json.decode(reply.body, type=Session).stream_url

    def forget_session(self) -> None:
        """The session does not match the present partitions."""
        self._url = None

    def open(self, positions: Mapping[int, Position]) -> Listen:
        """The stream of the session, from these positions on."""
        assert self._url is not None
        self._parser = EventParser()
        self._opened_s, self._had_piece, self.is_open = self._now(), False, True
        last = {
            f"{self._topic}#{partition}" if partition else self._topic: position._asdict()
            for partition, position in positions.items()
        }
        headers = {
            "Accept": "text/event-stream",
            "Last-Event-ID": urlsafe_b64encode(msgspec.json.encode(last)).rstrip(b"=").decode(),
        }
        return Listen(Request(method="GET", target=getting(self._url).target, headers=headers))

    def feed(self, piece: bytes) -> Iterator[Watched]:
        """The complete events so far. The event named "error" has neither records nor a text. Raises
        UnexpectedAnswer."""
        self._had_piece = True
        try:
            for event in self._parser.feed(piece):
                if event.name == "error":
                    yield Watched(topic=self._topic, kind="error", head_seq=0)
                else:
                    yield answers.watched(event.name, event.id, event.data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedAnswer(f"The stream of events cannot be read: {error}.") from error

    def closed(self) -> None:
        """The reader has closed the stream."""
        self.is_open = False

    def broken(self, *, session_is_gone: bool = False) -> None:
        """No session or no stream could be opened, or the stream has ended."""
        worked = self.is_open and self._had_piece and self._now() - self._opened_s >= _BRIEF_S
        # A session ends with a restart or its timeout, which says nothing about streams.
        self._failures = 0 if worked or session_is_gone else self._failures + 1
        self.is_open = False
        if session_is_gone:
            self._url = None
        if self._failures >= _MOST_FAILURES:
            self.is_possible = False
