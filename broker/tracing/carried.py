"""Reads the W3C trace context in the meta of records: `traceparent`, and optionally `tracestate`. Pure.

Producers set it. The broker stores and returns meta unchanged, and only reads which trace a record belongs to. It
ignores meta in any other form.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

#: The first records of a request or batch that are searched for a context: a span has at most as many links.
MAX_CARRIED: Final = 128
_NAME: Final = b"traceparent"


class Carried(msgspec.Struct, frozen=True):
    """A trace context, with the values of the HTTP headers of the same names."""

    traceparent: str
    tracestate: str = ""


class _Body(msgspec.Struct):
    """A stored record."""

    meta: Carried


_meta = msgspec.json.Decoder(Carried)
_body = msgspec.json.Decoder(_Body)


def of_metas(metas: Iterable[bytes | None]) -> list[Carried]:
    """The contexts in these metas, which are JSON: each context once, in order."""
    found = [_decoded_meta(meta) for meta in islice(metas, MAX_CARRIED) if meta is not None and _NAME in meta]
    return list(dict.fromkeys(each for each in found if each is not None))


def of_bodies(bodies: Iterable[bytes]) -> list[Carried]:
    """The contexts in the metas of stored records: each context once, in order."""
    found = [_decoded_body(body) for body in islice(bodies, MAX_CARRIED) if _NAME in body]
    return list(dict.fromkeys(each for each in found if each is not None))


def _decoded_meta(meta: bytes) -> Carried | None:
    try:
        return _meta.decode(meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _decoded_body(body: bytes) -> Carried | None:
    try:
        return _body.decode(body).meta
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
