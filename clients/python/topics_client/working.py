"""Streams of events and workers: the events, and when to connect or ask again. No I/O."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from topics_client import queue_calls
from topics_client.errors import NotReady, TopicsError, api_error
from topics_client.retry import Pause, RetryPolicy
from topics_client.values import Claimed, Job
from topics_client.wire import Call

#: The broker sends something every 15 s. After this long without a byte, the stream is dead.
SILENCE_S = 45.0
#: For a queue that does not say.
DEFAULT_LEASE_MS = 30_000
_SHUTTING_DOWN = "server_shutting_down"


class Event(msgspec.Struct):
    """One event of a stream: its name, the text of its data, and its id ("" when it has none)."""

    name: str
    data: str
    id: str = ""


class EventParser:
    """Server-sent events from pieces of bytes, wherever these are split."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The complete events so far. Comments, and fields that our events do not have, are left out."""
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
    """When an endless stream is connected again. Call `alive` when something has arrived, `failed` when it has
    ended."""

    def __init__(self, policy: RetryPolicy, now: Callable[[], float], draw: Callable[[], float]) -> None:
        self._policy = policy
        self._now = now
        self._draw = draw
        self._tries = 0
        self._failing_since: float | None = None
        self.parser = EventParser()

    def alive(self) -> None:
        """The broker is there: failures from here on are counted from zero."""
        self._tries = 0
        self._failing_since = None

    def failed(self, error: TopicsError) -> Pause:
        """How long to wait before the next connection. Raises the error if there should be none."""
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
    """A worker that claims a job when it can begin one, and not before.

        call()           to be made once, again after every pause
        answered(jobs)   the jobs that came
        failed(error)    what to do about it: a Pause, or the error is raised

    If the broker is away, the worker waits according to the policy, counted from zero whenever something has arrived.
    """

    def __init__(
        self,
        topic: str,
        node: str,
        *,
        lease_ms: int | None,
        policy: RetryPolicy,
        now: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self._topic = topic
        self._node = node
        self._options: queue_calls.ClaimOptions = {"lease_ms": lease_ms, "wait_ms": queue_calls.MAX_WAIT_MS}
        self._connection = Reconnecting(policy, now, draw)
        self._attempt_key = uuid.uuid4().hex

    def call(self) -> Call[Claimed]:
        """A claim that waits. Until it is answered, the same claim is returned, so that a lost answer is given
        again."""
        return queue_calls.claim(self._topic, self._node, {**self._options, "attempt_key": self._attempt_key})

    def answered(self, claimed: Claimed) -> list[Job]:
        """The jobs to begin now."""
        self._connection.alive()
        self._attempt_key = uuid.uuid4().hex
        return claimed.jobs

    def failed(self, error: TopicsError) -> Pause:
        """How long to wait before the next call. Raises the error if there should be none."""
        return self._connection.failed(error)


def error_of(text: str) -> TopicsError:
    """The error of an event: `code` is a status, or says that the broker stops. Raises DecodeError."""
    data: dict[str, Any] = msgspec.json.decode(text)
    message = str(data.get("error", "The broker ended the stream."))
    code = data.get("code")
    if code == _SHUTTING_DOWN:
        return NotReady(message, code="shutting_down", status=503)
    status = code if isinstance(code, int) else 500
    return api_error(status, str(data.get("reason", "internal")), message, None, None)


def topic_of(text: str) -> str | None:
    """The only topic that such an event is about. Raises DecodeError."""
    topic = msgspec.json.decode(text).get("topic")
    return topic if isinstance(topic, str) else None
