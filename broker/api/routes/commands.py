"""The commands of a WebSocket: subscribe, unsubscribe, publish, ping.

Commands run concurrently. The answers to publishes to one topic keep the order of the publishes, and the commands that
start and stop watching a topic keep theirs. A refused command is answered by an error and changes nothing; the
connection stays open.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from pydantic import BaseModel, ValidationError

from broker.api.operation import Natural
from broker.api.record_count import check_count
from broker.api.routes.append import rendered, write_of
from broker.api.routes.replies import Refused, Replies, ReplyTo, Wording
from broker.api.routes.subscribing import Subscribing
from broker.auth import COMMANDS, WRITE_ADMIN, Access
from broker.content import strict_json, wrong_model
from broker.live import Watcher, frames
from broker.service import appends
from broker.telemetry import HttpMetrics
from schemas import Subscribe, Unsubscribe
from storage import InvalidRequest
from storage.records import Appended

M = TypeVar("M", bound=BaseModel)

#: Commands of one connection that may be under way; before the next one is read, one of them has to end.
MAX_UNDER_WAY: Final = 64


class _Head(msgspec.Struct):
    """The fields that every command has, so that even a refusal can return the request_id."""

    op: Raw | UnsetType = UNSET
    type: Raw | UnsetType = UNSET
    request_id: Raw | UnsetType = UNSET
    topic: Raw | UnsetType = UNSET


class _Publish(msgspec.Struct):
    """The fields of a publish that the body of an append does not have."""

    partition: Natural | None = None
    return_seqs: bool | None = None


_head = msgspec.json.Decoder(_Head)
_publish = msgspec.json.Decoder(_Publish)
_text = msgspec.json.Decoder(str)
_answer: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])


_UNSUPPORTED: Final = "A message is a JSON object whose op is subscribe, unsubscribe, publish or ping."


class Commands:
    """The commands of one connection. `take` receives its messages one after another."""

    def __init__(self, watcher: Watcher[str], caller: Access, metrics: HttpMetrics, wording: Wording) -> None:
        self.wording = wording
        self._watcher = watcher
        self._live = watcher.live
        self._caller = caller
        self._replies = Replies(watcher, metrics)
        self._slots = asyncio.Semaphore(MAX_UNDER_WAY)
        self._subscribing = Subscribing(watcher, caller, self._replies, self._slots)
        self._writes: set[asyncio.Task[None]] = set()
        #: By topic: the latest write; its answer is sent last.
        self._last: dict[str, asyncio.Task[None]] = {}

    async def take(self, text: str | None) -> None:
        """Handle one message; return when the next one may be read. `text` None: the message was not text."""
        await self._watcher.room()
        began = perf_counter()
        to = ReplyTo(self.wording.word)
        try:
            raw = (text or "").encode()
            head = await _head_of(raw if text is not None else None)
            to = self._reply_to(head)
            command = _command(head)
            topic = None if head.topic is UNSET else _topic(bytes(head.topic))
            self._caller.require(COMMANDS[command], () if topic is None else (topic,))
            match command:
                case "subscribe":
                    await self._subscribing.subscribe(_model(Subscribe, raw), to)
                case "unsubscribe":
                    await self._subscribing.unsubscribe(_model(Unsubscribe, raw), to)
                case "publish":
                    await self._publish(topic, raw, to, began)
                case "ping" | _:
                    self._replies.send("pong", to, ts=self._live.engine.now_ms())
        except Exception as error:
            self._replies.refuse(error, to)

    def _reply_to(self, head: _Head) -> ReplyTo:
        if head.op is not UNSET:
            self.wording.word = frames.OP
        elif head.type is not UNSET:
            self.wording.word = frames.TYPE
        return ReplyTo(self.wording.word, None if head.request_id is UNSET else Raw(bytes(head.request_id)))

    def close(self) -> None:
        """The connection has ended. Writes in progress continue, but are not answered."""
        self._subscribing.close()
        for write in self._writes:
            write.cancel()

    # -- what they do ------------------------------------------------------------------------------------------------

    async def _publish(self, topic: str | None, raw: bytes, to: ReplyTo, began: float) -> None:
        if topic is None:
            raise InvalidRequest("topic: required.", field="topic")
        await check_count(raw, self._live.engine.options.max_batch_records)
        write = await write_of(topic, raw)
        more = await strict_json.decode(raw, _publish)
        write.partition = more.partition
        self._caller.require(COMMANDS["publish"] if write.settings is None else WRITE_ADMIN, appends.names_of(write))
        await self._slots.acquire()
        self._subscribing.writes(write.topic)
        before = self._last.get(write.topic)
        task = asyncio.create_task(self._write(write, before, to, began, seqs=more.return_seqs is True))
        self._last[write.topic] = task
        self._writes.add(task)
        task.add_done_callback(lambda done: self._written(write.topic, done))

    async def _write(
        self, write: appends.Append, before: asyncio.Task[None] | None, to: ReplyTo, began: float, *, seqs: bool
    ) -> None:
        outcome: Appended | Exception
        try:
            outcome = await appends.append(self._live.engine, write, self._live.pressure)
        except Exception as error:
            outcome = error
        if before is not None:
            await asyncio.wait((before,))
        if isinstance(outcome, Exception):
            self._replies.refuse(outcome, to)
        else:
            answer: dict[str, Raw] = _answer.decode(rendered(outcome, seqs=seqs, started=began))
            self._replies.send("ack", to, **answer)

    def _written(self, topic: str, task: asyncio.Task[None]) -> None:
        self._slots.release()
        self._writes.discard(task)
        if self._last.get(topic) is task:
            del self._last[topic]


def _command(head: _Head) -> str:
    """Raises Refused."""
    given = head.type if head.op is UNSET else head.op
    try:
        command = "" if given is UNSET else _text.decode(given)
    except msgspec.ValidationError:
        command = ""
    if command not in COMMANDS:
        raise Refused("unsupported_message", _UNSUPPORTED)
    return command


def _topic(raw: bytes) -> str | None:
    """The name of the topic; None for null, which means no topic. Raises InvalidRequest."""
    if raw == b"null":
        return None
    try:
        return _text.decode(raw)
    except msgspec.ValidationError:
        raise InvalidRequest("topic: expected a string.", field="topic") from None


async def _head_of(raw: bytes | None) -> _Head:
    """The head of a message. Raises Refused."""
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
