"""Lease ids: a token, which is a number, as clients see it. Pure.

lease_00c0ffee00c0ffee      `lease_` and 16 lower-case hex digits; never all zeros
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from storage.errors import InvalidRequest

PREFIX: Final = "lease_"
_ALL = re.compile(rf"(?:{PREFIX}[0-9a-f]{{16}},)*")
_ONE = re.compile(rf"{PREFIX}[0-9a-f]{{16}}")


def tokens(given: Sequence[str] | None) -> list[int] | None:
    """The tokens, 0 where none is given (""); None when none is given at all. Raises InvalidRequest."""
    if not given:
        return None
    # All in one look, as long as each is one: with another length, commas within could make up for it.
    text = ",".join(given) + ","
    if len(text) == len(given) * (len(PREFIX) + 17) and _ALL.fullmatch(text):
        found = [int(each[len(PREFIX) :], 16) for each in given]
        if all(found):
            return found
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
