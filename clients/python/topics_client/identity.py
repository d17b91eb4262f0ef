"""The certificate by which a client says who it is (mutual TLS)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from topics_client.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Identity:
    """Paths of PEM files: the certificate, with those between it and its authority, and its key; None: it is there too.

    Both None: the client shows no certificate.
    """

    cert: str | None = None
    key: str | None = None


NOBODY = Identity()


def identity(base: str, cert: str | os.PathLike[str] | None, key: str | os.PathLike[str] | None) -> Identity:
    """What these files say, for a broker at that address. Raises InvalidRequest."""
    if cert is None:
        if key is not None:
            raise InvalidRequest("A key needs its certificate: give cert too.")
        return NOBODY
    if not base.lower().startswith("https:"):
        raise InvalidRequest(f"A certificate is shown only over TLS, and {base} is without: use https.")
    return Identity(os.fspath(cert), None if key is None else os.fspath(key))
