"""Watching topics: the session, the reader's position in all of them, and when to connect again. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from topics_client import answers
from topics_client.calls import getting, sending
from topics_client.errors import (
    ConnectionFailed,
    InvalidRequest,
    NotFound,
    TopicNotFound,
    TopicsError,
    UnexpectedAnswer,
)
from topics_client.retry import Pause, RetryPolicy
from topics_client.values import Watched
from topics_client.wire import Call, Request
from topics_client.working import Reconnecting, error_of, topic_of

#: A topic that the broker cannot read for the moment is tried again this much later, with another connection.
AGAIN_S = 5.0

#: Names, to be watched from now on, or the seq to start after by name (None: from now on).
WatchTopics: TypeAlias = str | Iterable[str] | Mapping[str, int | None]


class WatchOptions(TypedDict, total=False):
    """Options of `watch`; omitted = the broker's default. `partition` is that of each topic to watch, counted from 0: a
    watch is of one partition of a topic."""

    node: str | Sequence[str] | None
    limit: int
    max_batch_bytes: int
    heartbeat_ms: int
    include_tags: bool
    include_meta: bool
    include_data: bool
    consistency: Literal["eventual", "strong"]
    skip_corrupt: bool
    partition: int | None
    last_event_id: str


class Session(msgspec.Struct):
    """The broker's description of a session."""

    stream_url: str
    topics: dict[str, Any]


class Watching:
    """The life of a watch over its sessions and connections.

        session()        the call to make while `request` is None; its value goes to begin()
        stream()         the request for the events, to be sent again after every pause
        feed(piece)      events out of what came
        ended()          the connection has ended: why
        failed(error)    what to do about it: a Pause, or the error is raised

    Sessions are in the broker's memory: after a restart there is none, and a new one continues at the reader's
    positions.
    """

    def __init__(
        self,
        topics: WatchTopics,
        options: WatchOptions,
        *,
        policy: RetryPolicy,
        now: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        #: By topic: the seq to start after. None while it is not known.
        self._starts = _starts(topics)
        if not self._starts:
            raise InvalidRequest("There is nothing to watch.", detail={"field": "topics"})
        self._fields: dict[str, Any] = {"include_tags": True, **options}
        self._last_id: str = self._fields.pop("last_event_id", "")
        partition: int | None = self._fields.pop("partition", None)
        self._of_each: dict[str, int] = {} if partition is None else {"partition": int(partition)}
        self._known = False
        self.request: Request | None = None
        self._connection = Reconnecting(policy, now, draw)
        self._now = now
        #: Topics of which this connection returns nothing more.
        self._stopped: set[str] = set()
        #: When to connect again for one of them, and why.
        self._again: tuple[float, TopicsError] | None = None

    def session(self) -> Call[Session]:
        """Make a session. A missing topic is an error at first; later it means that the topic was deleted."""
        topics = {
            name: self._of_each if seq is None else {**self._of_each, "from_seq": seq}
            for name, seq in self._starts.items()
        }
        fields = {name: value for name, value in self._fields.items() if value is not None}
        target = "/v0/watch?lenient=true" if self._known else "/v0/watch"
        return Call(request=sending("POST", target, {**fields, "topics": topics}), parse=_session)

    def begin(self, made: Session) -> list[Watched]:
        """There is a session. Returns the events of topics that were deleted meanwhile."""
        gone = [name for name in self._starts if name not in made.topics]
        deleted = [Watched(topic=name, kind="topic-deleted", head_seq=self._starts.pop(name) or 0) for name in gone]
        if not self._known:
            self._starts = {name: int(start["from_seq"]) for name, start in made.topics.items()}
            self._known = True
        self.request = getting(made.stream_url)
        return deleted

    def stream(self) -> Request:
        """The request for the events. There is a session."""
        assert self.request is not None
        self._stopped.clear()
        self._again = None
        headers = {"Accept": "text/event-stream"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        return Request(method="GET", target=self.request.target, headers=headers)

    def feed(self, piece: bytes) -> Iterator[Watched]:
        """The complete events so far. Raises the error with which the broker ends the stream, and errors that another
        connection may resolve.
        """
        self._connection.alive()
        if self._again is not None and self._now() >= self._again[0]:
            raise self._again[1]
        try:
            for event in self._connection.parser.feed(piece):
                if event.name == "error":
                    yield self._stop(event.data)
                    continue
                found = answers.watched(event.name, event.id, event.data)
                self._last_id = event.id or self._last_id
                if found.kind == "topic-deleted":
                    self._starts.pop(found.topic, None)
                elif found.tombstone is not None:
                    self._starts[found.topic] = found.tombstone.gap_to
                elif found.kind == "record":
                    self._starts[found.topic] = found.to_seq
                yield found
                if not self._starts:
                    raise TopicNotFound("Every topic that was watched has been deleted.", status=404)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedAnswer(f"The stream of events cannot be read: {error}.") from error

    def _stop(self, text: str) -> Watched:
        """The event of one topic, while there are others. Raises its error if there are none."""
        error, topic = error_of(text), topic_of(text)
        if topic is not None:
            self._stopped.add(topic)
        if topic is None or self._stopped >= self._starts.keys():
            raise error
        if error.transient and self._again is None:
            self._again = (self._now() + AGAIN_S, error)
        return Watched(topic=topic, kind="error", head_seq=0, error=error)

    def ended(self) -> TopicsError:
        """The error of a stream that ends without an event."""
        return ConnectionFailed("The stream of events broke off.")

    def failed(self, error: TopicsError) -> Pause:
        """How long to wait before the next attempt. Raises the error if there should be none."""
        if isinstance(error, NotFound) and not isinstance(error, TopicNotFound) and self.request is not None:
            self.request = None  # the session ended with a restart or its timeout
            return Pause(seconds=0.0, error=error, tries=1)
        return self._connection.failed(error)


def _starts(topics: WatchTopics) -> dict[str, int | None]:
    if isinstance(topics, str):
        return {topics: None}
    return {name: topics[name] if isinstance(topics, Mapping) else None for name in topics}


def _session(reply: Any) -> Session:
    return msgspec.json.decode(reply.body, type=Session)
