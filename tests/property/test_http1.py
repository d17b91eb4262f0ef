"""Answers of HTTP/1.1 in pieces of any size, beside the library that knows the standard."""

from __future__ import annotations

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics_client.http1 import MOST_HEAD, Answer, NotHttp, head_of
from topics_client.wire import Reply, Request

OK = b"HTTP/1.1 200 OK\r\n"
BODIES = st.lists(st.binary(min_size=1, max_size=300), max_size=5)


def written(status: int, body: list[bytes], chunked: bool) -> bytes:
    """An answer as a server writes it."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n")
    assert isinstance(server.next_event(), h11.Request)
    length = [] if chunked else [("Content-Length", str(sum(map(len, body))))]
    out = server.send(h11.InformationalResponse(status_code=103, headers=[("Link", "x")])) or b""
    out += server.send(h11.Response(status_code=status, headers=[("X-One", "a"), ("x-one", "b"), *length])) or b""
    for piece in body:
        out += server.send(h11.Data(data=piece)) or b""
    return out + (server.send(h11.EndOfMessage(headers=[("x-last", "1")] if chunked else [])) or b"")


def pieces_of(data: bytes, cuts: set[int]) -> list[bytes]:
    at = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    return [data[begin:end] for begin, end in pairwise(at)]


def read(pieces: list[bytes]) -> tuple[Reply, bool]:
    """The answer, which is complete with the last piece, and whether it keeps the connection."""
    answer = Answer()
    assert [answer.feed(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    return answer.reply(), answer.keeps


@given(
    status=st.sampled_from([200, 201, 409, 503]), body=BODIES, chunked=st.booleans(), cuts=st.sets(st.integers(1, 2000))
)
def test_an_answer_is_read_in_pieces_of_any_size(status: int, body: list[bytes], chunked: bool, cuts: set[int]) -> None:
    reply, keeps = read(pieces_of(written(status, body, chunked), cuts))
    assert (reply.status, reply.body, reply.headers["x-one"]) == (status, b"".join(body), "a, b")
    assert keeps


@given(body=BODIES, chunked=st.booleans(), cut=st.integers(0, 5000))
def test_an_answer_that_is_cut_short_is_never_taken_for_a_whole_one(body: list[bytes], chunked: bool, cut: int) -> None:
    whole = written(200, body, chunked)
    answer = Answer()
    part = whole[: cut % len(whole)]
    if part:
        assert not answer.feed(part)
    with pytest.raises(NotHttp, match="the connection was closed"):
        answer.feed(b"")


@given(data=st.binary(min_size=1, max_size=200), chunked=st.booleans())
def test_what_follows_an_answer_ends_the_connection(data: bytes, chunked: bool) -> None:
    reply, keeps = read([written(200, [b"body"], chunked) + data])
    assert reply.body == b"body"
    assert not keeps


@given(
    data=st.binary(max_size=400),
    after=st.sampled_from([b"", OK, OK + b"a: b\r\n\r\n"]),
)
def test_other_bytes_are_an_error_or_an_answer_but_nothing_else(data: bytes, after: bytes) -> None:
    answer = Answer()
    try:
        for piece in (after + data, b""):
            if answer.feed(piece):
                assert answer.reply().status >= 200
                return
    except NotHttp:
        pass


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * (MOST_HEAD + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 9000,
    ],
)
def test_an_answer_that_is_not_valid_is_refused(answer: bytes) -> None:
    with pytest.raises(NotHttp):
        Answer().feed(answer)


@pytest.mark.parametrize(
    ("answer", "body", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\na", b"a", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive\r\n\r\na", b"a", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na", b"a", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"", True),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n1 ;x=y\r\na\r\n0\r\n\r\n",
            b"a",
            False,
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", True),
    ],
)
def test_a_connection_is_kept_if_the_answer_allows_it(answer: bytes, body: bytes, keeps: bool) -> None:
    reply, kept = read([answer])
    assert (reply.body, kept) == (body, keeps)


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    answer = Answer()
    assert not answer.feed(b"HTTP/1.1 200 OK\r\n\r\nab")
    assert not answer.feed(b"c")
    assert answer.feed(b"")
    assert (answer.reply().body, answer.keeps) == (b"abc", False)


@given(
    method=st.sampled_from(["GET", "POST", "DELETE"]),
    body=st.none() | st.binary(max_size=50),
    value=st.text(st.characters(max_codepoint=255), max_size=20),
)
def test_a_request_arrives_as_it_was_meant(method: str, body: bytes | None, value: str) -> None:
    request = Request(method=method, target="/v0/x?a=b", body=body, headers={"X-Value": value})
    try:
        head = head_of(request, "broker:4000", "/path", {"Accept": "a", "X-Value": "other"})
    except ValueError:
        assert "\r" in value or "\n" in value
        return
    server = h11.Connection(h11.SERVER)
    server.receive_data(head + (body or b""))
    try:
        found = server.next_event()
    except h11.RemoteProtocolError:
        # Other characters that no header has: the server refuses the request.
        assert any(ord(each) < 32 or ord(each) == 127 for each in value)
        return
    assert isinstance(found, h11.Request)
    assert (found.method, found.target) == (method.encode(), b"/path/v0/x?a=b")
    headers = dict(found.headers)
    assert headers[b"host"] == b"broker:4000"
    assert headers[b"accept"] == b"a"
    assert headers[b"x-value"] == value.strip(" \t").encode("latin-1")
    if body:
        data = server.next_event()
        assert isinstance(data, h11.Data)
        assert bytes(data.data) == body
    assert isinstance(server.next_event(), h11.EndOfMessage)
