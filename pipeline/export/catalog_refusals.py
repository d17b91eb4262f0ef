"""What the error of an Iceberg catalog means. Pure.

The text of most errors is left out: it may contain what the configuration of the catalog keeps secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

#: Names of classes, because each belongs to a package that may be missing, and why nothing answered.
_SILENT = {
    "ConnectionError": "nothing answers there",
    "ConnectionRefusedError": "nothing listens there",
    "ConnectTimeout": "it does not answer in time",
    "ReadTimeout": "it does not answer in time",
    "gaierror": "its name is unknown",
    "TimeoutError": "it does not answer in time",
    "timeout": "it does not answer in time",
    "TTransportException": "nothing answers there, or not as a metastore",
    "SSLError": "TLS fails with it: check the scheme, and which certificates are trusted",
}
#: Of classes whose text has no secrets: the first line of it.
_HARMLESS = ("OperationalError",)


def address_of(uri: str) -> str:
    """Where a catalog is, without the name and the password in its URL."""
    parts = urlsplit(uri)
    return uri.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1) if parts.netloc else uri


def silence(error: BaseException, uri: str) -> str | None:
    """That nothing answered, and where. None: the error is another one."""
    found = [_SILENT[name] for each in _chain(error) if (name := type(each).__name__) in _SILENT]
    # The last one is nearest to the network.
    return f"the catalog {address_of(uri)} cannot be reached: {found[-1]}. Check --catalog" if found else None


def said(error: BaseException, uri: str) -> str:
    """The reason of an error, as the end of a sentence without its full stop."""
    if (found := silence(error, uri)) is not None:
        return found
    kind = type(error).__name__
    if kind in _HARMLESS:
        first, _, _ = (str(getattr(error, "orig", error)) or kind).partition("\n")
        return f"{address_of(uri)}: {first}"
    if kind == "RESTError" or kind.endswith("HTTPError"):
        return f"{address_of(uri)} does not answer as a REST catalog ({kind})"
    return kind


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes, as far as they are known."""
    while error is not None:
        yield error
        inner = getattr(error, "inner", None) or getattr(error, "reason", None)
        if isinstance(inner, BaseException):
            yield inner
        error = error.__cause__ or error.__context__
