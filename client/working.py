"""Working off a queue's stream of jobs: what its events mean, and when to connect again. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from client import answers, queue_calls
from client.errors import ConnectionFailed, NotReady, TopicNotFound, TopicsError, UnexpectedAnswer, api_error
from client.retry import Pause, RetryPolicy
from client.values import Job
from client.wire import Request

#: The broker shows every 15 s that the stream lives; after this long without a byte it does not.
SILENCE_S = 45.0
_SHUTTING_DOWN = "server_shutting_down"


class Event(msgspec.Struct):
    """One event of a stream: its name, the text of its data, and its id ("" when it has none)."""

    name: str
    data: str
    id: str = ""


class EventParser:
    """Server-sent events out of pieces of bytes, wherever these are cut."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that are whole now. Comments, and fields that no event of ours has, are left out."""
        self._rest += piece
        while (end := self._rest.find(b"\n\n")) >= 0:
            frame = bytes(self._rest[:end]).decode()
            del self._rest[: end + 2]
            fields: dict[str, str] = {}
            for line in frame.split("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
            if "event" in fields:
                yield Event(fields["event"], fields.get("data", ""), fields.get("id", ""))


class Reconnecting:
    """When an endless stream is connected anew. `alive` whenever something has come, `failed` when it has ended."""

    def __init__(self, policy: RetryPolicy, now: Callable[[], float], draw: Callable[[], float]) -> None:
        self._policy = policy
        self._now = now
        self._draw = draw
        self._tries = 0
        self._failing_since: float | None = None
        self.parser = EventParser()

    def alive(self) -> None:
        """The broker is there: whatever fails from here on is counted anew."""
        self._tries = 0
        self._failing_since = None

    def failed(self, error: TopicsError) -> Pause:
        """How long to wait before the next connection; raises the error when there should be none."""
        self.parser = EventParser()
        self._tries += 1
        now = self._now()
        if self._failing_since is None:
            self._failing_since = now
        error.tries = self._tries
        error.tried_for_s = now - self._failing_since
        seconds = self._policy.backoff_s(self._tries, error, self._draw())
        if not error.transient or self._policy.total_s <= 0 or error.tried_for_s + seconds > self._policy.total_s:
            raise error
        return Pause(seconds=seconds, error=error, tries=self._tries)


class Working:
    """The life of an endless stream of jobs over its connections.

        request          to be sent, again after every pause
        feed(piece)      jobs out of what came
        ended()          the connection has ended: raises why
        failed(error)    what to do about it: a Pause, or the error is raised

    A broker that is away is waited for as the policy says, counted anew whenever something has come from it.
    """

    def __init__(
        self,
        topic: str,
        node: str,
        *,
        max: int,
        lease_ms: int | None,
        policy: RetryPolicy,
        now: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self.request: Request = queue_calls.work(topic, node, max=max, lease_ms=lease_ms)
        self._topic = topic
        self._connection = Reconnecting(policy, now, draw)
        self.failed = self._connection.failed

    def feed(self, piece: bytes) -> Iterator[Job]:
        """The jobs that are whole now. Raises what the broker says the stream ends with."""
        self._connection.alive()
        try:
            for event in self._connection.parser.feed(piece):
                if event.name == "job":
                    yield answers.job(event.data)
                elif event.name == "topic-deleted":
                    raise TopicNotFound(f"The queue {self._topic} was deleted.", status=404)
                elif event.name == "error":
                    raise told(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnexpectedAnswer(f"The stream of jobs cannot be read: {error}.") from error

    def ended(self) -> TopicsError:
        """What a stream means that ends without a word."""
        return ConnectionFailed(f"The stream of jobs of {self._topic} broke off.")


def told(text: str) -> TopicsError:
    """The error that an event tells of: `code` is a status, or says that the broker stops. Raises DecodeError."""
    data: dict[str, Any] = msgspec.json.decode(text)
    message = str(data.get("error", "The broker ended the stream."))
    code = data.get("code")
    if code == _SHUTTING_DOWN:
        return NotReady(message, code="shutting_down", status=503)
    status = code if isinstance(code, int) else 500
    return api_error(status, str(data.get("reason", "internal")), message, None, None)


def told_of(text: str) -> str | None:
    """The one topic that such an event is about. Raises DecodeError."""
    topic = msgspec.json.decode(text).get("topic")
    return topic if isinstance(topic, str) else None
