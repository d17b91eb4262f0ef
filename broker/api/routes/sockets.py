"""GET /v0/ws: live reading and writing over one WebSocket.

The server pings (every 20 s, and gives up on a client that has not answered 20 s later). It closes with

    1001   the broker stops
    1008   the client has not read for too long
    1009   a message is longer than the limit for bodies
    1011   an internal error of the broker

after an `error` with details, if there is one. Watching a topic that cannot be read ends with an `error` that names the
topic, and the connection stays open.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import structlog

from broker.api import events
from broker.api.operation import Operation, Owner
from broker.api.push import LINGER_S, connection_of, try_send
from broker.api.request import Request, by_name, request_id
from broker.api.routes.commands import Commands
from broker.api.routes.replies import Wording
from broker.api.routes.watch import SLOW_READER, TOO_SLOW
from broker.auth import ANYBODY, NOTHING, Access, Rule
from broker.content import OK, Answer, Receive, Scope, Send, errors, with_protection
from broker.live import Watcher, frames
from broker.memory import SMALL, Memory
from schemas import SocketCommand, SocketMessage
from storage import InvalidRequest, NotReady, ShuttingDown, StorageError

if TYPE_CHECKING:
    from broker.wiring import Broker

#: The path of the WebSocket.
WEBSOCKET_PATH: Final = "/v0/ws"

_log = structlog.get_logger("broker.http")

_SWITCHED: Final = 101
_GOING_AWAY, _POLICY, _INTERNAL = 1001, 1008, 1011


async def without_upgrade(_request: Request) -> Answer:
    raise InvalidRequest("Upgrade: this path supports only WebSocket (RFC 6455).", field="Upgrade")


async def serve(broker: Broker, scope: Scope, receive: Receive, send: Send) -> None:
    """One connection, from its opening handshake to its end."""
    await receive()
    started = perf_counter()
    live = broker.live
    wording = Wording()
    watcher: Watcher[str] = Watcher(
        live,
        encode=lambda _, event: event.message(wording.word),
        failure=lambda error, topic: _failure(wording.word, error, topic),
        positions={},
    )
    try:
        caller = _gate(broker, scope)
        with broker.streams.hold(), caller.hold_stream():
            live.enter(watcher)
            try:
                await send({"type": "websocket.accept"})
                commands = Commands(watcher, caller, broker.http_metrics, wording)
                await _converse(commands, watcher, receive, send)
            finally:
                live.exit(watcher)
    except OSError:
        broker.http_metrics.client_gone(WEBSOCKET_PATH)  # uvicorn's error for that
        return
    except asyncio.CancelledError:
        if not broker.stopping:
            raise
        return
    except Exception as error:
        broker.http_metrics.refused(error)
        identity = request_id(dict(scope["headers"]).get(b"x-request-id"))
        await refuse_socket(errors.answer(error, request_id=identity.decode()), send)
        return
    broker.http_metrics.observe(WEBSOCKET_PATH, "GET", _SWITCHED, perf_counter() - started)


def _gate(broker: Broker, scope: Scope) -> Access:
    """The access of the caller. Raises what refuses the connection."""
    headers = by_name(scope["headers"])
    broker.sites.check_host(headers)
    broker.sites.check_page(headers, scope["scheme"], changes=True)
    if not broker.engine.ready:
        raise ShuttingDown if broker.stopping else NotReady(replay_progress=broker.engine.recovery_progress)
    caller = ANYBODY
    if broker.gate is not None:
        caller = broker.gate.admit(headers, b"", WEBSOCKET.rule)
    if scope["path"] != WEBSOCKET_PATH:
        raise errors.PathNotFound
    return caller


async def refuse_socket(answer: Answer, send: Send) -> None:
    """Send a refusal instead of switching protocols. If it is too late for that, the connection ends."""
    headers = [*with_protection(answer.headers), (b"content-type", answer.content_type)]
    with suppress(RuntimeError, OSError):
        await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": answer.body})
        return
    await send({"type": "websocket.close", "code": _INTERNAL})


async def _converse(commands: Commands, watcher: Watcher[str], receive: Receive, send: Send) -> None:
    """Receive commands and send events until either side ends the connection."""
    memory = watcher.live.memory

    def push(text: str) -> bool:
        fits = len(text) <= SMALL or memory.answers.has_room(connection_of(send), len(text))
        return fits and try_send(send, _message(text))

    watcher.attach(push)
    listening = asyncio.create_task(_listen(commands, receive, memory))
    sending = asyncio.create_task(_send(watcher, commands.wording, send))
    try:
        await asyncio.wait((listening, sending), return_when=asyncio.FIRST_COMPLETED)
        for task in (listening, sending):
            if task.done():
                task.result()
    finally:
        commands.close()
        listening.cancel()
        sending.cancel()
        await asyncio.wait((listening, sending))


async def _listen(commands: Commands, receive: Receive, memory: Memory) -> None:
    while (message := await receive())["type"] != "websocket.disconnect":
        # Many messages may have come at once, and none of them needs to wait for anything.
        await memory.begin()
        await commands.take(message.get("text"))


async def _send(watcher: Watcher[str], wording: Wording, send: Send) -> None:
    try:
        async for text in watcher.pieces():
            async with asyncio.timeout(events.PATIENCE_S):
                await send(_message(text))
    except TimeoutError:
        _log.warning("client_too_slow", route=WEBSOCKET_PATH)
        _send_last(watcher, wording, send)
        return
    code = _GOING_AWAY if isinstance(watcher.error, ShuttingDown) else _INTERNAL
    await send({"type": "websocket.close", "code": code})


def _send_last(watcher: Watcher[str], wording: Wording, send: Send) -> None:
    """Queue the last messages for a client that does not read. They are sent if it reads again in time."""
    watcher.live.figures.slow_closed += 1
    protocol: Any = getattr(send, "__self__", None)
    if protocol is None:
        return
    protocol.writable.set()
    try_send(send, _message(frames.message(wording.word, "error", code=SLOW_READER, message=TOO_SLOW)))
    try_send(send, {"type": "websocket.close", "code": _POLICY})
    asyncio.get_running_loop().call_later(LINGER_S, protocol.transport.abort)


def _message(text: str) -> dict[str, Any]:
    return {"type": "websocket.send", "text": text}


def _failure(word: str, error: StorageError, topic: str | None) -> str:
    code = events.SHUTTING_DOWN if isinstance(error, ShuttingDown) else error.code
    more: dict[str, object] = {} if topic is None else events.topic_and_partition(topic)
    if error.detail:
        more["detail"] = error.detail
    return frames.message(word, "error", None, code=code, message=error.message, **more)


_MESSAGES: Final = """\
> {"op":"subscribe","request_id":1,"topic":"orders","from_seq":0}
< {"op":"subscribed","request_id":1,"topics":{"orders":{"from_seq":0,"head_seq":1,"earliest_seq":1}}}
< {"op":"record","topic":"orders","records":[{"$seq":1,"$ts":1767225600000,"data":{"id":7}}],"from_seq":0,\
"to_seq":1,"head_seq":1}
< {"op":"caught_up","topic":"orders","head_seq":1}
> {"op":"publish","request_id":2,"topic":"orders","records":[{"data":{"id":8}}]}
< {"op":"ack","request_id":2,"topic":"orders","first_seq":2,"last_seq":2,"head_seq":2,"count":1,"created":false,\
"deduped":false}
"""


#: Each command has its own scopes.
WEBSOCKET: Final = Operation(
    method="GET",
    path=WEBSOCKET_PATH,
    name="open_websocket",
    handler=without_upgrade,
    rule=Rule(NOTHING),
    owner=Owner.ALL,
    tag="watch",
    summary="Watch and write over a WebSocket",
    description="JSON text messages. From the client: `subscribe`, `unsubscribe`, `publish`, `ping`; a "
    "`request_id` is returned in the reply. From the broker: `subscribed`, `unsubscribed`, `ack`, "
    "`pong`, `record`, `caught_up`, `tombstone`, `topic_deleted`, `error`. The example shows both "
    "directions.",
    answer=None,
    events=SocketMessage,
    commands=SocketCommand,
    media_type="application/json",
    example=_MESSAGES,
    parameters=(),
    successes={OK: "Actually 101: the connection then is a WebSocket."},
    refusals=("invalid_request", "throttled", "shutting_down"),
)
OPERATIONS: Final = [WEBSOCKET]
