"""The TLS of connections between nodes. Both sides prove that they belong to the cluster, before a byte is read.

From a secret that all nodes share, each process derives the same key of a certificate authority, and makes itself a
certificate that is good for a day. Nothing of it is stored. Whoever has the secret is a node, and nobody else is.

Instead of the secret, files can be given: a certificate, its key, and the authority that signed those of all nodes. It
must sign for this cluster only: every certificate of it is a node.

Source: docs/adr/0122-mutual-tls-between-nodes.md.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: The shortest secret, in characters.
MIN_SECRET: Final = 32
#: How long a certificate is good, and how often a process makes itself another.
LIFETIME: Final = timedelta(days=1)
RENEW_S: Final = 3600.0
#: A certificate is good from this time before it was made: clocks differ.
BEFORE: Final = timedelta(minutes=5)
#: The derivation takes some tens of milliseconds and 16 MiB, so that a secret that is not random costs time to guess.
_SCRYPT: Final[dict[str, Any]] = {"salt": b"topics cluster authority 1", "n": 1 << 14, "r": 8, "p": 1, "dklen": 48}
_AUTHORITY: Final = "topics cluster"
#: The order of the group of P-256.
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class LinkError(Exception):
    """The settings of the connections between nodes cannot be used. The message says why and contains no secret."""


class LinkTls:
    """The TLS contexts of one process: `server` for connections from other nodes, `client` for those to them."""

    def __init__(self, load: Callable[[LinkTls], None]) -> None:
        """`load` gives both contexts a certificate and what they trust."""
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client.check_hostname = False  # any node may be at any address; its certificate says that it is a node
        self.server.num_tickets = 0
        for context in (self.server, self.client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
        self._load = load
        self.renew()

    def renew(self) -> None:
        """Use another certificate for connections from now on. Raises LinkError; then the one before stays."""
        self._load(self)


def from_secret(secret: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> LinkTls:
    """The contexts for the secret of the cluster. Takes some tens of milliseconds. Raises LinkError."""
    if len(secret) < MIN_SECRET:
        raise LinkError(f"TOPICS_CLUSTER_SECRET has less than {MIN_SECRET} characters.")
    try:
        authority = _Authority(secret)
    except ImportError:
        raise LinkError(
            "TOPICS_CLUSTER_SECRET needs the package cryptography: install topics-broker[cluster]."
        ) from None

    def load(tls: LinkTls) -> None:
        at = now()
        certificate, key = authority.issue(at)
        for context in (tls.server, tls.client):
            _load_chain(context, key + certificate)
        if not tls.client.cert_store_stats()["x509"]:
            trusted = authority.certificate(at)
            for context in (tls.server, tls.client):
                context.load_verify_locations(cadata=trusted)

    return LinkTls(load)


def from_files(certificate: Path, key: Path | None, authority: Path) -> LinkTls:
    """The contexts for certificates in files (PEM), which are read again with each `renew`. Raises LinkError."""

    def passphrase() -> str:
        # Without this, OpenSSL would ask on the terminal.
        raise LinkError("The private key of the cluster's certificate is encrypted; use one without a passphrase.")

    def load(tls: LinkTls) -> None:
        try:
            for context in (tls.server, tls.client):
                context.load_verify_locations(authority)
                context.load_cert_chain(certificate, key, passphrase)
        except OSError as error:  # SSLError is an OSError
            names = "TOPICS_CLUSTER_CERT, TOPICS_CLUSTER_KEY and TOPICS_CLUSTER_CA"
            raise LinkError(f"{names} cannot be used: {error}.") from None

    return LinkTls(load)


class _Authority:
    """The authority of a cluster, whose key is derived from the secret."""

    def __init__(self, secret: str) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        drawn = int.from_bytes(hashlib.scrypt(secret.encode(), **_SCRYPT), "big")
        self._key = ec.derive_private_key(1 + drawn % (_P256_ORDER - 1), ec.SECP256R1())

    def certificate(self, at: datetime) -> str:
        """Its own certificate, as PEM. Each process makes one; they differ only in their times."""
        return self._signed(_AUTHORITY, self._key.public_key(), at, timedelta(days=36500), is_authority=True).decode()

    def issue(self, at: datetime) -> tuple[bytes, bytes]:
        """A certificate and its new private key, as PEM."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        written = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._signed("topics node", key.public_key(), at, LIFETIME, is_authority=False), written

    def _signed(self, name: str, key: Any, at: datetime, lifetime: timedelta, *, is_authority: bool) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(_AUTHORITY))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(at - BEFORE)
            .not_valid_after(at + lifetime)
            .add_extension(
                x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if not is_authority:
            usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    """`load_cert_chain` for bytes: the private key is never in a file system."""
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
