"""Lease ids: a token, which is a number, as clients see it. Pure.

lease_00c0ffee00c0ffee      `lease_` and 16 lower-case hex digits; never all zeros
"""

from __future__ import annotations

import re
import struct
from binascii import unhexlify
from collections.abc import Sequence
from typing import Final

import msgspec

from storage.errors import InvalidRequest

PREFIX: Final = "lease_"
_ONE = re.compile(rf"{PREFIX}[0-9a-f]{{16}}")
#: An array of them as JSON, as most write it.
_OPENING: Final = b'["' + PREFIX.encode()
_BETWEEN: Final = b'","' + PREFIX.encode()
_CLOSING: Final = b'"]'
_texts = msgspec.json.Decoder(list[str] | None)


def tokens_of_json(text: bytes) -> Sequence[int] | None:
    """`tokens` of what stands in a body, which is JSON. Raises InvalidRequest; msgspec.DecodeError for what is no array
    of strings.
    """
    # All in one go, if what comes out is written just like what came in: nobody has to make a string of each.
    try:
        digits = unhexlify(text[len(_OPENING) : -len(_CLOSING)].replace(_BETWEEN, b""))
    except ValueError:
        digits = b""
    count, rest = divmod(len(digits), 8)
    if count and not rest and text == _OPENING + digits.hex(",", 8).encode().replace(b",", _BETWEEN) + _CLOSING:
        found = struct.unpack(f">{count}Q", digits)
        if all(found):
            return found
    return tokens(_texts.decode(text))


def tokens(given: Sequence[str] | None) -> list[int] | None:
    """The tokens, 0 where none is given (""); None when none is given at all. Raises InvalidRequest."""
    if not given:
        return None
    # All in one go, if what comes out is written just like what came in. There are as many commas in both: so none of
    # them was in an id, and each is one.
    text = ",".join(given)
    try:
        digits = bytes.fromhex(text.replace(PREFIX, "").replace(",", ""))
    except ValueError:
        digits = b""
    if len(digits) == 8 * len(given) and text == PREFIX + digits.hex(",", 8).replace(",", f",{PREFIX}"):
        found = struct.unpack(f">{len(given)}Q", digits)
        if all(found):
            return [*found]
    return [_token(each, index) for index, each in enumerate(given)]


def _token(text: str, index: int) -> int:
    if not text:
        return 0
    if _ONE.fullmatch(text):
        token = int(text[len(PREFIX) :], 16)
        if token:  # 0 would be taken for none given
            return token
    raise InvalidRequest(
        f"lease_ids[{index}]: not a lease id, which is {PREFIX} and 16 hex digits.", field=f"lease_ids[{index}]"
    )
