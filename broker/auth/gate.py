"""Finds the Access of a request's caller from the headers."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from broker.auth.access import ANYBODY, Access, KeyAccess, Unauthorized
from broker.auth.keys import Keyring, Keys
from broker.auth.rules import Rule

_BEARER: Final = b"bearer "
_BASIC: Final = b"basic "
_TOKEN: Final = b"token="


class Gate:
    """All keys of a broker, and their requests in flight."""

    def __init__(self, keys: Keys, *, probe_auth: bool, max_inflight: int, max_streams: int) -> None:
        self._keyring = Keyring(keys)
        self.probe_auth = probe_auth
        self._callers = {key.number: KeyAccess(key, max_inflight=max_inflight, max_streams=max_streams) for key in keys}

    def callers(self) -> Iterator[KeyAccess]:
        return iter(self._callers.values())

    def admit(self, headers: Mapping[bytes, bytes], query: bytes, rule: Rule | None) -> Access:
        """The Access of the caller. `rule` None: the request matches no route. Raises Unauthorized."""
        if rule is not None and (rule.everybody or (rule.probe and not self.probe_auth)):
            return ANYBODY
        key = None
        if b"authorization" in headers:
            key = _bearer(headers[b"authorization"])
            if key is None and rule is not None and rule.basic:
                key = _basic(headers[b"authorization"])
        elif rule is not None and rule.token:
            key = _in_query(query)
        caller = None if key is None else self.find(key)
        if caller is None:
            raise Unauthorized
        return caller

    def of_bearer(self, headers: Mapping[bytes, bytes]) -> KeyAccess | None:
        """Like `admit` for a route without special rules; None if that would raise."""
        key = _bearer(headers.get(b"authorization", b""))
        return None if key is None else self.find(key)

    def find(self, key: bytes) -> KeyAccess | None:
        """The Access of a key; None: unknown."""
        found = self._keyring.find(key)
        return None if found is None else self._callers[found.number]


def _bearer(header: bytes) -> bytes | None:
    """The key in an Authorization header (RFC 6750 §2.1, the scheme in any case); None: none."""
    if header[: len(_BEARER)].lower() != _BEARER:
        return None
    return header[len(_BEARER) :].strip(b" ") or None


def _basic(header: bytes) -> bytes | None:
    """The password in an Authorization header, with any user name (RFC 7617)."""
    if header[: len(_BASIC)].lower() != _BASIC:
        return None
    try:
        _, _, password = b64decode(header[len(_BASIC) :].strip(b" "), validate=True).partition(b":")
    except ValueError:
        return None
    return password or None


def _in_query(query: bytes) -> bytes | None:
    """The key in ?token=, the last one if there are several."""
    for item in reversed(query.split(b"&")):
        if item.startswith(_TOKEN):
            return unquote_to_bytes(item[len(_TOKEN) :]) or None  # keys contain no space, so + means itself
    return None
