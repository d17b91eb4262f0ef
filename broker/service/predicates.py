"""Names and tag predicates as they come in requests.

Source: docs/reference/api.md#conventions, docs/reference/api.md#records.
"""

from __future__ import annotations

import json
from typing import Any

from schemas import is_consumer_name, is_topic_name
from storage import InvalidRequest
from storage.records import TagMatch

_NAME_RULE = "1 to 255 of A-Z a-z 0-9 . _ : -, beginning with a letter, a digit or _"
_CONSUMER_RULE = "1 to 512 of A-Z a-z 0-9 . _ : - %, beginning with a letter, a digit or _"
_FORMS = '"x", ["tag","Eq","x"] or ["tag","Glob","x*"]'


def check_topic_name(name: str, field: str = "topic") -> None:
    """Raises InvalidRequest when no topic can be called that."""
    if not is_topic_name(name):
        raise InvalidRequest(f"{field}: not a topic name, which is {_NAME_RULE}.", field=field)


def check_consumer_name(name: str) -> None:
    """Raises InvalidRequest when no consumer can be called that."""
    if not is_consumer_name(name):
        raise InvalidRequest(f"consumer: not a consumer's name, which is {_CONSUMER_RULE}.", field="consumer")


def tag_match(predicate: Any, field: str) -> TagMatch | None:
    """The predicate in a decoded JSON value; None for null. Raises InvalidRequest naming `field`."""
    match predicate:
        case None:
            return None
        case str(text) if "*" in text:
            raise _two_meanings(text, field)
        case str(text) | ["tag", "Eq", str(text)]:
            return TagMatch(text.encode())
        case ["tag", "Glob", str(text)]:
            if not text.endswith("*") or "*" in text[:-1]:
                raise InvalidRequest(f"{field}: a glob has exactly one *, at its end.", field=field)
            return TagMatch(text[:-1].encode(), prefix=True)
        case _:
            raise InvalidRequest(f"{field}: expected {_FORMS}.", field=field)


def _two_meanings(text: str, field: str) -> InvalidRequest:
    """A tag may have a *, and elsewhere a bare x* means all that begins with x: whichever was meant deletes or passes
    over what the other does not, so it has to be said."""
    this = f"{json.dumps(['tag', 'Eq', text], ensure_ascii=False)} for that very tag"
    if text.endswith("*") and "*" not in text[:-1]:
        glob = json.dumps(["tag", "Glob", text], ensure_ascii=False)
        return InvalidRequest(f"{field}: a * in a plain tag has two meanings: write {glob} for every tag that begins "
                              f"so, or {this}.", field=field)  # fmt: skip
    return InvalidRequest(f"{field}: a plain tag has no *: write {this}; a glob has one *, at its end.", field=field)
