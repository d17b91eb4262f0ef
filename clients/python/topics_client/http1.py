"""HTTP/1.1 as a client speaks it: the head of a request, and an answer from the bytes that arrive. No I/O.

Source: RFC 9112.
"""

from __future__ import annotations

from collections.abc import Mapping

from topics_client.wire import Reply, Request

#: The most that is read before the end of a head, or of the line before a chunk.
MOST_HEAD, _MOST_LINE = 64 << 10, 8 << 10
#: What a connection is asked for at once, at least and at most.
_LEAST_READ, _MOST_READ = 64 << 10, 1 << 20
#: Answers that have no body, whatever their headers say.
_BODILESS = frozenset({204, 304})


class NotHttp(Exception):
    """What arrived is not a complete answer."""


def head_of(request: Request, host: str, path: str, headers: Mapping[str, str]) -> bytes:
    """The request up to its body. `host`: as the header has it; `path`: what comes before the request's target;
    `headers`: of every request. Raises ValueError for headers that would end the head."""
    lines = [f"{request.method} {path}{request.target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in {**headers, **request.headers}.items()]
    if request.body is not None or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(request.body or b'')}")
    text = "\r\n".join(lines)
    if text.count("\n") + text.count("\r") != 2 * (len(lines) - 1):
        raise ValueError("A header has a line break.")
    return f"{text}\r\n\r\n".encode("latin-1")


class Answer:
    """One answer, of bytes in any pieces.

    feed(data)   whether it is complete; b"" is the end of the connection
    wants        how many bytes to ask the connection for
    keeps        once it is complete: whether the connection may have another request
    reply()      once it is complete
    """

    __slots__ = ("_buffer", "_chunk", "_head", "_headers", "_left", "_pieces", "_status", "keeps")

    def __init__(self) -> None:
        self.keeps = True
        self._status = 0
        self._headers: dict[str, str] = {}
        #: Whether the head has not ended.
        self._head = True
        #: What has arrived and is not complete: of the head, or of chunks.
        self._buffer = bytearray()
        #: Bytes of the body that have not arrived. None: there are chunks, or it ends with the connection.
        self._left: int | None = None
        #: Bytes that the chunk has left, its line break included. 0: a line with a size is next. -1: the lines after
        #: the last chunk are. None: there are no chunks.
        self._chunk: int | None = None
        self._pieces: list[bytes] = []

    @property
    def wants(self) -> int:
        """How many bytes to ask for."""
        return min(max(self._left or 0, _LEAST_READ), _MOST_READ)

    def feed(self, data: bytes) -> bool:
        """Whether the answer is complete with these bytes. Empty: the connection has ended. Raises NotHttp."""
        if not data:
            self._end()
            return True
        if self._head:
            self._buffer += data
            if not self._take_head():
                return False
            data = bytes(self._buffer)
            self._buffer.clear()
        if self._chunk is not None:
            self._buffer += data
            return self._take_chunks()
        if self._left is None:
            self._pieces.append(data)
            return False
        if len(data) > self._left:
            # Nobody has asked for what follows.
            self.keeps = False
            data = data[: self._left]
        self._left -= len(data)
        self._pieces.append(data)
        return self._left == 0

    def reply(self) -> Reply:
        """The answer. It is complete."""
        pieces = self._pieces
        return Reply(
            status=self._status, headers=self._headers, body=pieces[0] if len(pieces) == 1 else b"".join(pieces)
        )

    def _end(self) -> None:
        self.keeps = False
        if self._head:
            before = "in the middle of its answer" if self._buffer else "without an answer"
            raise NotHttp(f"the connection was closed {before}")
        if self._left is not None or self._chunk is not None:
            raise NotHttp("the connection was closed in the middle of its answer")

    def _take_head(self) -> bool:
        """Whether the head has ended. What follows it stays in the buffer."""
        while True:
            at = self._buffer.find(b"\r\n\r\n")
            if at < 0 or at > MOST_HEAD:
                if len(self._buffer) > MOST_HEAD:
                    raise NotHttp("the head of the answer is too long")
                return False
            head = self._buffer[:at].decode("latin-1")
            del self._buffer[: at + 4]
            self._read_head(head)
            # Others announce that one.
            if self._status >= 200:
                self._head = False
                return True

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        version, _, rest = first.partition(" ")
        status = rest[:3]
        if not (version in ("HTTP/1.1", "HTTP/1.0") and len(status) == 3 and status.isascii() and status.isdigit()):
            raise NotHttp(f"the answer is not HTTP: {first[:60]!r}")
        self._status = int(status)
        headers: dict[str, str] = {}
        self._headers = headers
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise NotHttp(f"a line of the answer's head is not a header: {line[:60]!r}")
            name, value = name.lower(), value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        said = headers.get("connection", "").lower()
        self.keeps = "close" not in said if version == "HTTP/1.1" else "keep-alive" in said
        if self._status == 101 or "transfer-encoding" in headers:
            self._begin_chunks(headers)
        elif self._status in _BODILESS:
            self._left = 0
        elif "content-length" in headers:
            self._left = _length(headers["content-length"])

    def _begin_chunks(self, headers: dict[str, str]) -> None:
        coding = headers.get("transfer-encoding", "")
        if self._status == 101 or coding.lower() != "chunked":
            raise NotHttp(f"the answer has a form that was not asked for ({self._status} {coding[:60]})")
        self._chunk = 0
        # A length beside chunks is a lie of somebody.
        if "content-length" in headers:
            self.keeps = False

    def _take_chunks(self) -> bool:
        """Whether the last chunk and the lines after it have arrived."""
        buffer = self._buffer
        while buffer:
            if self._chunk is not None and self._chunk > 0:
                taken = bytes(buffer[: self._chunk])
                del buffer[: self._chunk]
                self._chunk -= len(taken)
                # The last two bytes are the line break after the chunk.
                self._pieces.append(taken)
                if self._chunk == 0:
                    self._drop_break()
                continue
            at = buffer.find(b"\r\n")
            if at < 0:
                if len(buffer) > _MOST_LINE:
                    raise NotHttp("a line of the answer is too long")
                return False
            line = bytes(buffer[:at])
            del buffer[: at + 2]
            if self._chunk == 0:
                size = _size(line)
                self._chunk = size + 2 if size else -1
            elif not line:
                self.keeps = self.keeps and not buffer
                return True
        return False

    def _drop_break(self) -> None:
        """Removes the line break that came with a chunk."""
        last = self._pieces.pop()
        if len(last) == 1:
            # It came in two pieces.
            last = self._pieces.pop() + last
        if last[-2:] != b"\r\n":
            raise NotHttp("a chunk of the answer does not end where it should")
        self._pieces.append(last[:-2])


def _length(text: str) -> int:
    """Of a header Content-Length, which may say the same several times."""
    said = {each.strip() for each in text.split(",")}
    length = said.pop()
    if said or not (length.isascii() and length.isdigit() and len(length) < 20):
        raise NotHttp(f"the answer has no valid length ({text[:60]})")
    return int(length)


def _size(line: bytes) -> int:
    """Of the line before a chunk, which may have more after a semicolon."""
    text = line.partition(b";")[0].strip(b" \t")
    if not 0 < len(text) < 16 or text.strip(b"0123456789abcdefABCDEF"):
        raise NotHttp(f"a chunk of the answer has no size ({line[:60]!r})")
    return int(text, 16)
