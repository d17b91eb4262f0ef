"""Hostile requests, as bytes. No server may accept them as requests, or act on them.

If one of them hides a second request, that request would create the topic `SMUGGLED`. None may succeed.
"""

from __future__ import annotations

from typing import Final

SMUGGLED: Final = "smuggled"
#: This topic exists, and does not change whatever is sent.
THERE: Final = "there"

_INNER: Final = f"PUT /v0/topics/{SMUGGLED} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()

#: Targets that lead nowhere: 4xx for every method. Beginnings of a directory, of a file, of another route; bad UTF-8.
TARGETS: Final = [
    "/v0/topics/..",
    "/v0/topics/.",
    "/v0/topics/../../../../etc/passwd",
    "/v0/topics/%2e%2e",
    "/v0/topics/%2e%2e/%2e%2e/etc/passwd",
    "/v0/topics/..%2f..%2f..%2fetc%2fpasswd",
    "/v0/topics/%252e%252e%252f",
    "/v0/topics/there%2f..%2fthere",
    "/v0/topics/there%2Frecords",
    "/v0/topics/there%2fdelete",
    "/v0/topics/there%2Fconsumers%2fx",
    "/v0/topics%2fthere",
    "/v0/topics/there/../there",
    "/v0/topics/%00",
    "/v0/topics/there%00",
    "/v0/topics/there%0d%0ax-injected:%20yes",
    "/v0/topics/there%0a",
    "/v0/topics/%c0%ae%c0%ae",
    "/v0/topics/%ff%fe",
    "/v0/topics/%ed%a0%80",
    "/v0/topics/%",
    "/v0/topics/%2",
    "/v0/topics/%zz",
    "/v0/topics/%u0041",
    "/v0/topics/%EF%BB%BFthere",
    "/v0/topics/\\..\\..\\x",
    "/v0/topics/there;x=y",
    "/v0/topics/-there",
    "/v0/topics/.there",
    "/v0/topics/" + "a" * 256,
    "/v0/topics/" + "%61" * 256,
    "/v0/topics/" + "../" * 500,
    "/v0/topics//",
    "/v0//topics/there",
    "//v0/topics/there",
    "/v0/topics/there//records",
    "/v0/topics/there/records/..%2f..%2f1",
    "/v0/topics/there/records/%00",
    "/v0/topics/there/records/18446744073709551616",
    "/v0/topics/there/records/-1",
    "/v0/topics/there/records/1e3",
    "/v0/topics/there/segments/../../../x/data",
    "/v0/topics/there/segments/..%2f..%2fx/data",
    "/v0/topics/there/segments/1/..%2fdata",
    "/v0/topics/there/consumers/..",
    "/v0/topics/there/consumers/..%2f..",
    "/v0/topics/there/consumers/%00",
    "/v0/topics/there/consumers/" + "c" * 513,
    "/v0/routers/..%2f..%2fx",
    "/v0/routers/%00",
    "/v0/watch/..%2f..%2fx",
    "/v0/watch/" + "w" * 5000,
    "/docs/..",
    "/docs/../core.py",
    "/docs/..%2fcore.py",
    "/docs/%2e%2e%2f%2e%2e%2fcore.py",
    "/docs/%00",
    "/docs/swagger-ui.css%00.js",
    "/docs//etc/passwd",
    "/data/wal-00/0000000000000001.wal",
    "/../../../../etc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/v0/topics/{topic}",
    "/{}",
    "/v0/topics/${jndi:ldap://x/a}",
    "*",
    "x",
    "http://other/../../etc/passwd",
    "file:///etc/passwd",
]
METHODS: Final = ["GET", "PUT", "POST", "DELETE", "HEAD"]


def framed(target: str, method: str) -> bytes:
    """One request for a target."""
    body = b"{}" if method in ("PUT", "POST") else b""
    more = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
    return f"{method} {target} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n".encode() + body


def _post(*fields: bytes, body: bytes = b"") -> bytes:
    head = [b"POST /v0/topics/there/diff HTTP/1.1", b"host: localhost", b"content-type: application/json", *fields]
    return b"\r\n".join([*head, b"", b""]) + body


def _chunked(body: bytes, *fields: bytes) -> bytes:
    return _post(b"transfer-encoding: chunked", *fields, body=body)


#: Two readers may frame these requests in two ways (RFC 9112 §6.3, §7.1, §11.2): they are refused, and the connection
#: ends.
AMBIGUOUS: Final[dict[str, bytes]] = {
    "length and chunks": _post(b"content-length: 4", b"transfer-encoding: chunked", body=b"0\r\n\r\n" + _INNER),
    "chunks and length": _post(b"transfer-encoding: chunked", b"content-length: 4", body=b"0\r\n\r\n" + _INNER),
    "two lengths": _post(b"content-length: 2", b"content-length: 0", body=b"{}" + _INNER),
    "list of lengths": _post(b"content-length: 2, 0", body=b"{}" + _INNER),
    "length with a sign": _post(b"content-length: +2", body=b"{}" + _INNER),
    "negative length": _post(b"content-length: -2", body=b"{}" + _INNER),
    "length in hexadecimal": _post(b"content-length: 0x2", body=b"{}" + _INNER),
    "length with a space": _post(b"content-length: 0 2", body=b"{}" + _INNER),
    "length with an underscore": _post(b"content-length: 1_0", body=b"{}" + _INNER),
    "length of other digits": _post("content-length: ٢".encode(), body=b"{}" + _INNER),
    "empty length": _post(b"content-length:", body=_INNER),
    "length beyond 64 bits": _post(b"content-length: 18446744073709551618", body=b"{}" + _INNER),
    "unknown coding": _post(b"transfer-encoding: xchunked", body=b"0\r\n\r\n" + _INNER),
    "identity": _post(b"transfer-encoding: identity", body=b"0\r\n\r\n" + _INNER),
    "chunked is not last": _post(b"transfer-encoding: chunked, identity", body=b"0\r\n\r\n" + _INNER),
    "chunked twice": _post(b"transfer-encoding: chunked, chunked", body=b"0\r\n\r\n" + _INNER),
    "two codings": _post(b"transfer-encoding: chunked", b"transfer-encoding: x", body=b"0\r\n\r\n" + _INNER),
    "quoted coding": _post(b'transfer-encoding: "chunked"', body=b"0\r\n\r\n" + _INNER),
    "vertical tab before the coding": _post(b"transfer-encoding: \x0bchunked", body=b"0\r\n\r\n" + _INNER),
    "space before the colon": _post(b"transfer-encoding : chunked", body=b"0\r\n\r\n" + _INNER),
    "tab before the colon": _post(b"content-length\t: 0", body=_INNER),
    "folded line": _post(b"x-a: b", b" content-length: 40", body=_INNER),
    "line that begins with a space": b"POST /v0/topics/there/diff HTTP/1.1\r\n host: localhost\r\n\r\n" + _INNER,
    "no colon": _post(b"content-length", body=_INNER),
    "no name": _post(b": 2", body=b"{}" + _INNER),
    "NUL in a name": _post(b"content-le\0ngth: 2", body=b"{}" + _INNER),
    "NUL in a value": _post(b"x-a: b\0c", body=_INNER),
    "CR in a value": _post(b"x-a: b\rcontent-length: 2", body=b"{}" + _INNER),
    "name that is not ASCII": _post(b"x-\xff: b", body=_INNER),
    "chunk size with a sign": _chunked(b"+2\r\n{}\r\n0\r\n\r\n" + _INNER),
    "negative chunk": _chunked(b"-2\r\n{}\r\n0\r\n\r\n" + _INNER),
    "chunk size with 0x": _chunked(b"0x2\r\n{}\r\n0\r\n\r\n" + _INNER),
    "chunk size of no digits": _chunked(b"\r\n{}\r\n0\r\n\r\n" + _INNER),
    "chunk beyond 64 bits": _chunked(b"10000000000000002\r\n{}\r\n0\r\n\r\n" + _INNER),
    "chunk longer than said": _chunked(b"1\r\n{}\r\n0\r\n\r\n" + _INNER),
    "chunk shorter than said": _chunked(b"4\r\n{}\r\n0\r\n\r\n" + _INNER),
    "chunk size ends in a space": _chunked(b"2 \r\n{}\r\n0\r\n\r\n\x00" + _INNER),
    "rubbish instead of a chunk": _chunked(b"zz\r\n{}\r\n0\r\n\r\n" + _INNER),
}

#: Not HTTP/1.1, or a head of a size that nobody needs.
RUBBISH: Final[dict[str, bytes]] = {
    "bytes": bytes(range(256)) * 8 + b"\r\n\r\n",
    "zeros": bytes(100_000),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "HTTP/0.9": b"GET /v0/topics\r\n\r\n",
    "HTTP/1.2x": b"GET /v0/topics HTTP/1.2x\r\nhost: localhost\r\n\r\n",
    "lower-case version": b"GET /v0/topics http/1.1\r\nhost: localhost\r\n\r\n",
    "HTTP/9.9": b"GET /v0/topics HTTP/9.9\r\nhost: localhost\r\n\r\n",
    "space in the target": b"GET /v0/to pics HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "NUL in the target": b"GET /v0/topics\0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "target that is not ASCII": b"GET /v0/topics/\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "long target": b"GET /v0/topics/" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "long query": b"GET /v0/topics?prefix=" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "long method": b"A" * 100_000 + b" /v0/topics HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "long value": b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"b" * 100_000 + b"\r\n\r\n",
    "long name": b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\n" + b"x" * 100_000 + b": b\r\n\r\n",
    "many fields": b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
    "a field without an end": b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"b" * 1_000_000,
    "method with a colon": b"GE:T /v0/topics HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no host": b"GET /v0/topics HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\nhost: y\r\n\r\n",
}
