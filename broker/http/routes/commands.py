"""The commands of a WebSocket: subscribe, unsubscribe, publish, ping (source: api.md §5).

Commands run beside each other; what answers the publishes to one topic keeps their order, and so does what begins and
ends watching it. A command that is refused is answered by an error and changes nothing; the connection stays.
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pydantic import BaseModel, ValidationError

from broker.auth.access import Access
from broker.auth.scopes import WRITE_ADMIN
from broker.auth.table import COMMANDS
from broker.http import strict_json
from broker.http.errors import wrong_model
from broker.http.routes.append import Natural, write_of
from broker.http.routes.replies import Refused, Replies
from broker.http.routes.subscribing import Subscribing
from broker.live.watcher import Watcher
from broker.metrics import HttpMetrics
from broker.service import appends
from schemas.watch import Subscribe, Unsubscribe
from storage.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)

#: Commands of one connection that may be under way; the next one is not read before one of them has ended.
MAX_UNDER_WAY: Final = 64


class _Head(msgspec.Struct):
    type: str
    request_id: Raw | UnsetType = UNSET
    topic: str | UnsetType = UNSET


class _Place(msgspec.Struct):
    partition: Natural | None = None


_head = msgspec.json.Decoder(_Head)
_place = msgspec.json.Decoder(_Place)


_UNSUPPORTED: Final = "A message is a JSON object whose type is subscribe, unsubscribe, publish or ping."


class Commands:
    """Of one connection. `take` is given its messages one after another."""

    def __init__(self, watcher: Watcher[str], caller: Access, metrics: HttpMetrics) -> None:
        self._watcher = watcher
        self._live = watcher.live
        self._caller = caller
        self._replies = Replies(watcher, metrics)
        self._places = asyncio.Semaphore(MAX_UNDER_WAY)
        self._subscribing = Subscribing(watcher, caller, self._replies, self._places)
        self._writes: set[asyncio.Task[None]] = set()
        #: By topic: the write whose answer is sent last.
        self._last: dict[str, asyncio.Task[None]] = {}

    async def take(self, text: str | None) -> None:
        """One message; returns when the next one may be read. None: it was no text."""
        await self._watcher.room()
        request_id: Raw | None = None
        try:
            raw = (text or "").encode()
            head = await _head_of(raw if text is not None else None)
            request_id = None if head.request_id is UNSET else Raw(bytes(head.request_id))
            if head.type not in COMMANDS:
                raise Refused("unsupported_message", _UNSUPPORTED)
            self._caller.require(COMMANDS[head.type], () if head.topic is UNSET else (head.topic,))
            match head.type:
                case "subscribe":
                    await self._subscribing.subscribe(_model(Subscribe, raw), request_id)
                case "unsubscribe":
                    await self._subscribing.unsubscribe(_model(Unsubscribe, raw), request_id)
                case "publish":
                    await self._publish(head, raw, request_id)
                case "ping":
                    self._replies.say("pong", request_id, ts=self._live.engine.now_ms())
                case _:
                    raise Refused("unsupported_message", _UNSUPPORTED)
        except Exception as error:
            self._replies.refuse(error, request_id)

    def close(self) -> None:
        """The connection has ended. Writes under way are not taken back; nobody is told of them."""
        self._subscribing.close()
        for write in self._writes:
            write.cancel()

    # -- what they do ------------------------------------------------------------------------------------------------

    async def _publish(self, head: _Head, raw: bytes, request_id: Raw | None) -> None:
        if head.topic is UNSET:
            raise InvalidRequest("topic: required.", field="topic")
        write = await write_of(head.topic, raw)
        if b"partition" in raw:
            write.partition = (await strict_json.decode(raw, _place)).partition
        self._caller.require(COMMANDS["publish"] if write.settings is None else WRITE_ADMIN, appends.names_of(write))
        await self._places.acquire()
        self._subscribing.writes(write.topic)
        before = self._last.get(write.topic)
        task = asyncio.create_task(self._write(write, before, request_id))
        self._last[write.topic] = task
        self._writes.add(task)
        task.add_done_callback(lambda done: self._written(write.topic, done))

    async def _write(self, write: appends.Append, before: asyncio.Task[None] | None, request_id: Raw | None) -> None:
        outcome: object = None
        try:
            outcome = await appends.append(self._live.engine, write, self._live.pressure)
        except Exception as error:
            outcome = error
        if before is not None:
            await asyncio.wait((before,))
        if isinstance(outcome, Exception):
            self._replies.refuse(outcome, request_id)
        else:
            done = msgspec.to_builtins(outcome)
            if done["partition"] is None:
                del done["partition"]
            if not done.pop("payload_differs"):
                self._replies.say("ack", request_id, **done)
            else:
                self._replies.say("ack", request_id, **done, payload_differs=True)

    def _written(self, topic: str, task: asyncio.Task[None]) -> None:
        self._places.release()
        self._writes.discard(task)
        if self._last.get(topic) is task:
            del self._last[topic]


async def _head_of(raw: bytes | None) -> _Head:
    """What the message is. Raises Refused."""
    if raw is None:
        raise Refused("unsupported_message", "Messages are text, not binary.")
    try:
        await strict_json.check(raw)
    except InvalidRequest as error:
        raise Refused("invalid_json", error.message.replace("body", "message", 1)) from None
    try:
        return _head.decode(raw)
    except msgspec.ValidationError:
        raise Refused("unsupported_message", _UNSUPPORTED) from None


def _model(model: type[M], raw: bytes) -> M:
    try:
        return model.model_validate(strict_json.loads(raw))
    except ValidationError as error:
        raise wrong_model(error.errors()[0], (), "message") from None
