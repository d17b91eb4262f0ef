"""Where a cluster is: s3://bucket/prefix, gs:// or az://. The address is never shown before it is checked: it may
contain a credential."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

from storage.bucket.driver import RemoteBucket, open_bucket
from storage.bucket.limits import TIMEOUT_S
from storage.bucket.reasons import VARIABLES
from storage.errors import OpenError

SCHEMES: Final = ("s3", "gs", "az")
#: As `Options.cold_dir` of a cell in a bucket: older segments are there alone.
IN_BUCKET: Final = "bucket"


class Location(msgspec.Struct, frozen=True):
    """A prefix in a bucket."""

    scheme: str
    bucket: str
    #: Without a slash at either end; empty: the whole bucket.
    prefix: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def parse_location(url: str) -> Location:
    """Pure. Raises ValueError, whose message does not have the address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("it is no URL") from None
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise ValueError(f"expected {', '.join(f'{name}://bucket/prefix' for name in SCHEMES)}")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("it has no user, query or fragment; credentials go into the environment")
    prefix = parts.path.strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise ValueError("its prefix has an empty part, '.' or '..'")
    return Location(parts.scheme, parts.netloc, prefix)


def open_location(location: Location, timeout_s: float = TIMEOUT_S) -> RemoteBucket:
    """The store. Makes no request. Raises OpenError without the extra `cold`, or if the environment lacks what the
    store needs."""
    try:
        from obstore.exceptions import BaseError
    except ModuleNotFoundError:
        raise OpenError(
            f"A cluster at {location.scheme}:// needs the extra `cold`: pip install 'topics-broker[cold]'"
        ) from None
    try:
        return open_bucket(location.scheme, location.bucket, location.prefix or None, timeout_s)
    except (BaseError, ValueError):
        raise OpenError(
            f"The store {location.scheme}://{location.bucket} cannot be opened: the settings in the environment "
            f"({VARIABLES}) are incomplete or wrong."
        ) from None
