"""Patterns of topic names in subscriptions: regular expressions with bounded work. Pure.

The event loop matches a pattern with all topic names. Refused are patterns whose time could grow faster than the square
of a name's length: more than two of `*` and `+`, or one of them after a group; counted repeats; back references.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from broker.proxy.errors import Unprocessable

MAX_PATTERN_CHARS: Final = 255
_MAX_UNBOUNDED, _MAX_OPTIONAL = 2, 5
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern, which must match a whole name. Raises Unprocessable."""
    if not pattern or len(pattern) > MAX_PATTERN_CHARS:
        raise Unprocessable(f"topic_pattern: expected 1 to {MAX_PATTERN_CHARS} characters.")
    tokens: list[str] = _TOKEN.findall(pattern)
    repeats = [at for at, token in enumerate(tokens) if token in ("*", "+")]
    behind_groups = any(token in ("*", "+", "?") and tokens[at - 1] == ")" for at, token in enumerate(tokens) if at)
    references = any(token[0] == "\\" and (token[1:].isdigit() or token == "\\g") for token in tokens)
    optional = sum(token == "?" for token in tokens)
    groups = any(token == "(" and tokens[at + 1 : at + 2] == ["?"] for at, token in enumerate(tokens))
    if len(repeats) > _MAX_UNBOUNDED or optional > _MAX_OPTIONAL or behind_groups or references or groups:
        raise Unprocessable("topic_pattern: too slow to match; use at most two of * and +, and none after a group.")
    if "{" in tokens:
        raise Unprocessable("topic_pattern: too slow to match; do not use counted repeats.")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise Unprocessable(f"topic_pattern: not a regular expression: {error}.") from None
