"""Why a store has not answered, in words that are safe to show: the text of an error may repeat a credential. Pure."""

from __future__ import annotations

import re
from typing import Final

#: What S3 and Google Cloud Storage say of a missing bucket, and Azure of a container. With the tags, because
#: the address of the request is in the text too: the word alone may be that of a prefix.
_NO_BUCKET: Final = ("<Code>NoSuchBucket</Code>", "<Code>ContainerNotFound</Code>")
#: What obstore's error says of the cause, and the words for it.
_CAUSES: Final = (
    *((code, "there is no bucket of that name") for code in _NO_BUCKET),
    ("ConnectionRefused", "the connection was refused"),
    ("dns error", "there is no host of that name"),
    ("kind: Timeout", "no answer in time"),
    ("BareRedirect", "the bucket is in another region (AWS_REGION)"),
    ("kind: Connect", "no connection"),
)
_STATUS: Final = re.compile(r"\bstatus: (\d{3})\b")
#: Where credentials come from.
VARIABLES: Final = "AWS_*, GOOGLE_*, AZURE_*"
_DENIED: Final = ("401", "403")
#: Where machines of all three clouds ask for their own credentials.
_OF_THE_MACHINE: Final = "169.254.169.254"
#: Of the address of the request. One with a user name is not shown.
_HOST: Final = re.compile(r"uri: Some\(\s*https?://([A-Za-z0-9.:\[\]_-]{1,255})/")


def lacks_bucket(error: Exception) -> bool:
    """Whether the answer says that there is no such bucket, which says nothing about an object."""
    text = str(error)
    return any(code in text for code in _NO_BUCKET)


def reason(error: Exception) -> str:
    """The host, if it is known, and what is wrong; or just the kind of error."""
    text = str(error)
    status = _STATUS.search(text)
    host = _HOST.search(text)
    of_the_machine = host is not None and host[1] == _OF_THE_MACHINE
    cause = next((words for sign, words in _CAUSES if sign in text), "")
    if not cause and status is not None:
        refused = status[1] in _DENIED and not of_the_machine
        cause = f"status {status[1]}" + (", the credentials are refused" if refused else "")
    cause = cause or type(error).__name__
    if of_the_machine:
        cause = f"the environment has no credentials ({VARIABLES}), and the machine gives none: {cause}"
    return (f"{host[1]}: " if host is not None else "") + cause
