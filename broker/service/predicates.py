"""Checks names and tag predicates of requests.

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
    """Raises InvalidRequest for an invalid topic name."""
    if not is_topic_name(name):
        raise InvalidRequest(f"{field}: not a valid topic name: {_NAME_RULE}.", field=field)


def check_consumer_name(name: str) -> None:
    """Raises InvalidRequest for an invalid consumer name."""
    if not is_consumer_name(name):
        raise InvalidRequest(f"consumer: not a valid consumer name: {_CONSUMER_RULE}.", field="consumer")


def tag_match(predicate: Any, field: str) -> TagMatch | None:
    """The predicate in a decoded JSON value; None for null. Raises InvalidRequest, which names `field`."""
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
    """The error for a plain string with *: it could mean a tag that contains *, or all tags with that prefix. The two
    match different records, so the request must say which."""
    this = f"{json.dumps(['tag', 'Eq', text], ensure_ascii=False)} for exactly this tag"
    if text.endswith("*") and "*" not in text[:-1]:
        glob = json.dumps(["tag", "Glob", text], ensure_ascii=False)
        return InvalidRequest(f"{field}: a * in a plain tag is ambiguous: write {glob} for all tags with this "
                              f"prefix, or {this}.", field=field)  # fmt: skip
    return InvalidRequest(
        f"{field}: a plain tag must not contain *: write {this}. A glob has one *, at its end.", field=field
    )
