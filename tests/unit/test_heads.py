"""Known request heads: `find` and `message_bytes` agree with the parser on everything that the parser accepts."""

from __future__ import annotations

import zttp
from hypothesis import example, given
from hypothesis import strategies as st

from broker.api.hot import Target
from broker.api.routes.append import OPERATIONS
from broker.api.routing import Route
from broker.server.http1 import END, MAX_HEAD_BYTES, MAX_HEADS, KnownHeads, message_bytes

TARGET = Target(Route(OPERATIONS[0]), OPERATIONS[0], ["t"], b"")
#: All that a head can say about its length, in all spellings, and much that it cannot say.
NAMES = st.sampled_from(
    [
        b"content-length",
        b"Content-Length",
        b"CONTENT-LENGTH",
        b"content-length ",
        b"content-length-x",
        b"transfer-encoding",
        b"Transfer-Encoding",
        b"transfer-encoding-x",
        b"x",
        b"connection",
        b" folded",
    ]
)
VALUES = st.sampled_from(
    [
        b"0",
        b"1",
        b"2",
        b"20",
        b"02",
        b"0000002",
        b"00000002",
        b"0" * 30 + b"2",
        b"+2",
        b"-2",
        b"2,2",
        b"2 2",
        b"0x2",
        b"",
        b"chunked",
        b"identity",
        b"close",
        b"keep-alive",
        b"\xb2",
        b"2\r",
        b"2\nx: y",
        b"2\x0b",
        b"1" * 25,
    ]
)
SPACES = st.text(" \t", max_size=2).map(str.encode)
FIELDS = st.tuples(NAMES, SPACES, VALUES, SPACES).map(lambda drawn: b"%b:%b%b%b" % drawn)
LINES = st.sampled_from([b"POST /v0/topics/t HTTP/1.1", b"GET / HTTP/1.0", b"HEAD / HTTP/1.1", b"CONNECT x:1 HTTP/1.1"])
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\r\n"])
HEADS = st.tuples(LINES, st.lists(FIELDS, max_size=3), ENDS).map(
    lambda drawn: drawn[2].join([drawn[0], b"host: x", *drawn[1]]) + END
)
BODIES = st.sampled_from([b"", b"{}", b"{}{}", b"\r\n\r\n", b"POST /v0/topics/t HTTP/1.1\r\nhost: x\r\n\r\n"])


def parsed(data: bytes) -> int | None:
    """The size of the message at the beginning of `data` according to the parser. None: it is refused, or
    incomplete."""
    connection = zttp.Connection(zttp.SERVER)
    for size in range(1, len(data) + 1):
        try:
            event = connection.receive_event(data[size - 1 : size])
            while event is not zttp.NEED_DATA:
                if isinstance(event, zttp.EndOfMessage) or (isinstance(event, zttp.Request) and event.end_stream):
                    return size
                event = connection.next_event()
        except zttp.RemoteProtocolError:
            return None
    return None


@given(HEADS, BODIES)
@example(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 00000002\r\n\r\n", b"{}")
@example(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2 \r\n\r\n", b"{}")
@example(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\t\r\n\r\n", b"{}")
def test_message_bytes_is_the_size_of_the_parser_or_none(head: bytes, body: bytes) -> None:
    size = parsed(head + body)
    if size is not None:
        assert message_bytes(head + body) in (size, None)


@given(HEADS, BODIES, HEADS, BODIES)
def test_find_returns_only_requests_that_the_parser_accepts(
    first: bytes, body: bytes, second: bytes, other: bytes
) -> None:
    """`second` with its body bypasses the parser only if the parser accepts all of it as one message."""
    heads = KnownHeads()
    if parsed(first + body) is None:
        return
    heads.learn(first[: first.find(END) + len(END)], TARGET, {})
    for data in (first + body, first + other, second + other):
        found = heads.find(data)
        if found is not None:
            assert parsed(data) == len(data)
            assert data.endswith(END + found[1])


def head(line: str = "POST /v0/topics/t HTTP/1.1", length: str = "2", more: str = "") -> bytes:
    return f"{line}\r\nhost: x\r\ncontent-length: {length}\r\n{more}\r\n".encode()


def test_only_the_length_may_differ() -> None:
    heads = KnownHeads()
    heads.learn(head(more="x-request-id: a\r\n"), TARGET, {b"x-request-id": b"a"})
    for body in (b"{}", b"", b"0123456789", b"x" * 1_000_000, END):
        known, found = heads.find(head(length=str(len(body)), more="x-request-id: a\r\n") + body) or (None, b"")
        assert known is not None
        assert (found, known.target, known.headers) == (body, TARGET, {b"x-request-id": b"a"})
    for data in (
        head(more="x-request-id: b\r\n") + b"{}",
        head(more="x-request-id: a\r\nx: y\r\n") + b"{}",
        head(more="X-Request-Id: a\r\n") + b"{}",
        head() + b"{}",
        head(line="POST /v0/topics/t  HTTP/1.1", more="x-request-id: a\r\n") + b"{}",
        head(line="POST /v0/topics/t HTTP/1.0", more="x-request-id: a\r\n") + b"{}",
    ):
        assert heads.find(data) is None


def test_find_needs_exactly_the_announced_body() -> None:
    heads = KnownHeads()
    heads.learn(head(), TARGET, {})
    whole = head() + b"{}"
    assert heads.find(whole)
    for cut in range(len(whole)):
        assert heads.find(whole[:cut]) is None
    for more in (b" ", b"\r\n", whole):
        assert heads.find(whole + more) is None
    for length in ("", " 2", "2 ", "+2", "-2", "2\t", "0x2", "2\r", "²", "٢", "00000002", "1_0", "2,2", "2.0"):
        assert heads.find(head(length=length) + b"{}") is None, length


def test_a_head_without_a_plain_content_length_is_not_learned() -> None:
    once = head()
    for bad in (
        once.replace(b"content-length: 2", b"x: y"),
        once.replace(b"content-length: 2", b"content-length: 2\r\ncontent-length: 2"),
        once.replace(b"content-length: 2", b"Content-Length: 2\r\ncontent-length: 2"),
        once.replace(b"content-length: 2", b"content-length: 2 "),
        once.replace(b"content-length: 2", b"content-length: 00000002"),
        head(more=f"x: {'y' * MAX_HEAD_BYTES}\r\n"),
    ):
        heads = KnownHeads()
        heads.learn(bad, TARGET, {})
        assert heads.find(bad + b"{}") is None
        assert heads.find(once + b"{}") is None


def test_a_connection_remembers_few_heads_and_the_last_of_each_line() -> None:
    heads = KnownHeads()
    lines = [f"POST /v0/topics/t{number} HTTP/1.1" for number in range(MAX_HEADS + 1)]
    for line in lines[:-1]:
        heads.learn(head(line), TARGET, {})
    assert all(heads.find(head(line) + b"{}") for line in lines[:-1])
    heads.learn(head(lines[0], more="x: y\r\n"), TARGET, {})
    assert heads.find(head(lines[0], more="x: y\r\n") + b"{}")
    assert heads.find(head(lines[0]) + b"{}") is None
    assert heads.find(head(lines[1]) + b"{}"), "one for another of its line makes nobody forgotten"
    heads.learn(head(lines[-1]), TARGET, {})
    assert [bool(heads.find(head(line) + b"{}")) for line in lines] == [False] * MAX_HEADS + [True]


def test_an_incomplete_head_has_no_size() -> None:
    for data in (b"", b"\r\n", b"POST / HTTP/1.1\r\nhost: x\r\n", head()[:-1]):
        assert message_bytes(data) is None
    assert message_bytes(head(length="9999999")) == len(head(length="9999999")) + 9_999_999
    assert message_bytes(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + b"more") == 27
