"""WebSockets through the gateway: one connection to the client, and one to each cell that has a topic of its commands.

A command goes unchanged to the cell of its topic. A command that names topics of several cells is split: each cell gets
its own topics, and the client gets one answer, before any event of those topics.

Source: docs/cells.md#the-gateway.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from contextlib import AsyncExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from broker.api import PATIENCE_S, by_name, request_id
from broker.api.routes import WEBSOCKET, WEBSOCKET_PATH, refuse_socket
from broker.cells import PeerUnavailable
from broker.content import Answer, Receive, Scope, Send, errors
from broker.gateway.links import CONNECT_S
from broker.gateway.partitions import divided, opened
from broker.live import frames

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway
    from broker.gateway.locating import Locating

_SWITCHED: Final = 101
_GOING_AWAY, _POLICY = 1001, 1008
#: Messages from one cell that may wait for the client. Above this, reading from the cell stops.
_MOST_WAITING: Final = 4
#: The fields of the client's request that are forwarded to a cell.
_FORWARDED: Final = (b"authorization", b"traceparent", b"tracestate")
_UNSUBSCRIBE: Final = "unsubscribe"
_OPS: Final = ("subscribe", _UNSUBSCRIBE)
#: The fields of a command that say where to start in its `topic`.
_START: Final = ("partition", "partitions", "from_seq", "tail")
_ANSWERS: Final = ("subscribed", "unsubscribed")


class _Command(msgspec.Struct):
    """The fields of a command that the gateway reads."""

    op: Any = None
    type: Any = None
    topic: Any = None
    topics: Any = None
    partition: Any = None
    partitions: Any = None
    from_seq: Any = None
    tail: Any = None

    @property
    def kind(self) -> Any:
        return self.op if self.op is not None else self.type

    @property
    def word(self) -> str | None:
        """The field that names the kind. None: neither does."""
        return frames.OP if self.op is not None else frames.TYPE if self.type is not None else None


class _Reply(msgspec.Struct):
    request_id: Any = None


_command = msgspec.json.Decoder(_Command)
_reply = msgspec.json.Decoder(_Reply)
_object: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])


class Sockets:
    """The WebSockets of one gateway."""

    def __init__(self, gateway: Gateway, locating: Locating) -> None:
        self._gateway = gateway
        self._locating = locating

    async def serve(self, broker: Any, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its opening handshake to its end."""
        await receive()
        started = perf_counter()
        gateway = self._gateway
        headers = by_name(scope["headers"])
        try:
            self._check(scope, headers)
            with gateway.streams.hold():
                async with Conversation(gateway, self._locating, headers, send) as conversation:
                    # A cell may refuse for reasons unknown to the gateway, such as too many streams of a key.
                    await conversation.connect(0)
                    await send({"type": "websocket.accept"})
                    await conversation.converse(receive)
        except OSError:
            gateway.http_metrics.client_gone(WEBSOCKET_PATH)
            return
        except asyncio.CancelledError:
            if not gateway.stopping:
                raise
            return
        except _Refused as error:
            await refuse_socket(error.answer, send)
            return
        except Exception as error:
            gateway.http_metrics.refused(error)
            identity = request_id(headers.get(b"x-request-id"))
            await refuse_socket(errors.answer(error, request_id=identity.decode()), send)
            return
        gateway.http_metrics.observe(WEBSOCKET_PATH, "GET", _SWITCHED, perf_counter() - started)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Raises the error that refuses the connection, if any."""
        gateway = self._gateway
        gateway.sites.check_host(headers)
        gateway.sites.check_page(headers, scope["scheme"], changes=True)
        if gateway.gate is not None:
            gateway.gate.admit(headers, b"", WEBSOCKET.rule)
        if scope["path"] != WEBSOCKET_PATH:
            raise errors.PathNotFound


class _Refused(Exception):
    """A cell refused the handshake."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class _Divided:
    """A command that was split between several cells, until all have answered."""

    def __init__(self, starts: dict[str, Any], by_cell: dict[int, dict[str, Any]], request_id: Any) -> None:
        """`starts`: its topics. `by_cell`: those of each part."""
        self.starts = starts
        self.by_cell = by_cell
        self.waiting = {*by_cell}
        self.request_id = request_id
        self.answers: dict[int, dict[str, Any]] = {}
        self.done = asyncio.Event()


class Conversation:
    """One client's connection, and its connections to cells. When one of them ends, all end."""

    def __init__(self, gateway: Gateway, locating: Locating, headers: dict[bytes, bytes], send: Send) -> None:
        self._gateway = gateway
        self._locating = locating
        self._headers = headers
        self._send = send
        self._stack = AsyncExitStack()
        self._cells: dict[int, ClientConnection] = {}
        self._readers: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._code = _GOING_AWAY
        self._numbers = itertools.count(1)
        #: Begins the request_id of each part of a split command. No client can know it.
        self._mark = f"gateway-{secrets.token_hex(8)}-"
        #: Split commands by the request_id that the cells got.
        self._divided: dict[str, _Divided] = {}
        self._word = frames.EITHER

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for connection in self._cells.values():
            # Cancelled, so that the cell notices at once. A closing handshake would wait for its answer.
            connection.transport.abort()

    async def connect(self, cell: int) -> ClientConnection:
        """The connection to a cell. Raises PeerUnavailable, _Refused."""
        found = self._cells.get(cell)
        if found is not None:
            return found
        host = self._headers.get(b"host", b"localhost").decode("latin-1")
        given = {name.decode(): self._headers[name].decode("latin-1") for name in _FORWARDED if name in self._headers}
        try:
            upstream = self._gateway.upstreams[cell]
            async with asyncio.timeout(CONNECT_S):
                relayed = await upstream.relayed()
            connection = await unix_connect(
                str(upstream.path) if relayed is None else None,
                sock=relayed,
                uri=f"ws://{host}{WEBSOCKET_PATH}",
                additional_headers=given,
                compression=None,
                ping_interval=None,
                max_size=None,
                max_queue=_MOST_WAITING,
                user_agent_header=None,
            )
        except InvalidStatus as error:
            response = error.response
            content_type = response.headers.get("content-type", "application/json").encode()
            raise _Refused(
                Answer(bytes(response.body), status=response.status_code, content_type=content_type)
            ) from None
        except (OSError, TimeoutError, WebSocketException):
            raise PeerUnavailable(cell, "none") from None
        self._cells[cell] = connection
        reader = asyncio.create_task(self._read(cell, connection))
        self._readers.add(reader)
        return connection

    # -- from the client ---------------------------------------------------------------------------------------------

    async def converse(self, receive: Receive) -> None:
        """Receive commands until either side ends the connection."""
        listening = asyncio.create_task(self._listen(receive))
        ending = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait((listening, ending), return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                listening.result()
            else:
                await self._send({"type": "websocket.close", "code": self._code})
        finally:
            listening.cancel()
            ending.cancel()
            await asyncio.gather(listening, ending, return_exceptions=True)

    async def _listen(self, receive: Receive) -> None:
        while (message := await receive())["type"] != "websocket.disconnect":
            await self._gateway.memory.begin()
            text: str | None = message.get("text")
            cell = 0
            try:
                if text is None:
                    await (await self.connect(0)).send(message.get("bytes") or b"")
                    continue
                command = _decoded(text)
                self._word = command.word or self._word
                starts = _starts(command)
                by_cell = await self._owners(starts)
                if len(by_cell) > 1:
                    await self._divide(text, starts, by_cell)
                    continue
                cell = next(iter(by_cell), 0)
                await (await self.connect(cell)).send(text)
            except (ConnectionClosed, PeerUnavailable, _Refused) as error:
                await self._lost(cell if isinstance(error, ConnectionClosed) else getattr(error, "cell", cell))
                return

    async def _owners(self, starts: dict[str, Any]) -> dict[int, dict[str, Any]]:
        """The topics of a command by cell, each with where to start. Empty if the command is invalid: any cell answers
        with the error."""
        return (await divided(self._locating, starts, self._headers))[0]

    async def _divide(self, text: str, starts: dict[str, Any], by_cell: dict[int, dict[str, Any]]) -> None:
        """Send each cell its own part of a command."""
        whole = _object.decode(text)
        number = f"{self._mark}{next(self._numbers)}"
        self._divided[number] = _Divided(starts, by_cell, whole.pop("request_id", msgspec.UNSET))
        whole.pop("topic", None)
        ends = whole.get("op", whole.get("type")) == _UNSUBSCRIBE
        if not ends:
            whole = {field: value for field, value in whole.items() if field not in _START}
        for cell, its in by_cell.items():
            part = {**whole, "request_id": number, "topics": [*its] if ends else its}
            await (await self.connect(cell)).send(msgspec.json.encode(part).decode(), text=True)

    # -- from the cells ----------------------------------------------------------------------------------------------

    async def _read(self, cell: int, connection: ClientConnection) -> None:
        """Forward the messages of a cell, in order, and no faster than the client reads them."""
        try:
            while True:
                message = await connection.recv(decode=True)
                if self._divided and await self._is_part(cell, message):
                    continue
                async with asyncio.timeout(PATIENCE_S):
                    await self._send({"type": "websocket.send", "text": message})
        except ConnectionClosed as error:
            if error.rcvd is None:
                await self._lost(cell)
            else:
                self._code = error.rcvd.code
                self._ended.set()
        except TimeoutError:
            self._code = _POLICY
            self._ended.set()
        except OSError:
            self._ended.set()

    async def _is_part(self, cell: int, message: str) -> bool:
        """Whether the message answers a part of a split command. If so, later events wait for the other parts."""
        if self._mark not in message[:200]:
            return False
        number = _reply.decode(message).request_id
        divided = self._divided.get(number) if isinstance(number, str) else None
        if divided is None:
            return False
        divided.answers[cell] = _object.decode(message)
        divided.waiting.discard(cell)
        if divided.waiting:
            await divided.done.wait()
            return True
        del self._divided[number]
        try:
            await self._send({"type": "websocket.send", "text": _as_one(divided)})
        finally:
            divided.done.set()
        return True

    async def _lost(self, cell: int) -> None:
        """A cell has gone away, and commands in progress there may have been carried out. Close, so that the client
        reconnects and resumes."""
        error = PeerUnavailable(cell, "unknown")
        text = frames.message(self._word, "error", None, code=error.code, message=error.message, detail=error.detail)
        await self._send({"type": "websocket.send", "text": text})
        self._ended.set()


def _decoded(text: str) -> _Command:
    try:
        return _command.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return _Command()  # the cell answers with the error


def _starts(command: _Command) -> dict[str, Any]:
    """The topics of a command, each with where to start in it."""
    if command.kind not in _OPS:
        return {command.topic: None} if isinstance(command.topic, str) else {}
    given: Any = command.topics
    named: list[str] = [name for name in _names(given) if isinstance(name, str)]
    own = {name: value for name in _START if (value := getattr(command, name)) is not None}
    if command.kind == _UNSUBSCRIBE:  # its partitions are those of all its topics
        starts: dict[str, Any] = dict.fromkeys(named, own)
    else:
        starts = {name: given[name] if isinstance(given, dict) else None for name in named}
    return {command.topic: own, **starts} if isinstance(command.topic, str) else starts


def _names(topics: Any) -> list[Any]:
    return [*topics] if isinstance(topics, dict | list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _as_one(divided: _Divided) -> str:
    """The answer to a split command. It is an error if one cell refused its part."""
    answers = [*divided.answers.values()]
    kinds = [each.get("op", each.get("type")) for each in answers]
    answer = dict(answers[0])
    failed = next((each for each, kind in zip(answers, kinds, strict=True) if kind not in _ANSWERS), None)
    if failed is not None:
        answer = dict(failed)
    elif isinstance(answer["topics"], dict):
        said = {cell: each["topics"] for cell, each in divided.answers.items()}
        answer["topics"] = opened(divided.starts, divided.by_cell, said)
    else:
        answer["topics"] = [*dict.fromkeys(name for each in answers for name in each["topics"])]
    if divided.request_id is msgspec.UNSET:
        answer.pop("request_id", None)
    else:
        answer["request_id"] = divided.request_id
    return msgspec.json.encode(answer).decode()
