"""Why a store has not answered, in words that are safe to show: the text of an error may repeat a credential. Pure."""

from __future__ import annotations

import re
from typing import Final

#: What obstore's error says of the cause, and the words for it.
_CAUSES: Final = (
    ("NoSuchBucket", "there is no bucket of that name"),
    ("ConnectionRefused", "the connection was refused"),
    ("dns error", "there is no host of that name"),
    ("kind: Timeout", "no answer in time"),
    ("BareRedirect", "the bucket is in another region (AWS_REGION)"),
    ("kind: Connect", "no connection"),
)
_STATUS: Final = re.compile(r"\bstatus: (\d{3})\b")
_DENIED: Final = ("401", "403")
#: Of the address of the request. One with a user name is not shown.
_HOST: Final = re.compile(r"uri: Some\(\s*https?://([A-Za-z0-9.:\[\]_-]{1,255})/")


def reason(error: Exception) -> str:
    """The host, if it is known, and what is wrong; or just the kind of error."""
    text = str(error)
    status = _STATUS.search(text)
    cause = next((words for sign, words in _CAUSES if sign in text), "")
    if not cause and status is not None:
        cause = f"status {status[1]}" + (", the credentials are refused" if status[1] in _DENIED else "")
    host = _HOST.search(text)
    return (f"{host[1]}: " if host is not None else "") + (cause or type(error).__name__)
