"""A certificate for 127.0.0.1, made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(folder: Path, *more: str) -> tuple[Path, Path]:
    """The certificate and its key. `more`: options for openssl req, which writes an unencrypted key without them."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=localhost", "-days", "1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *names, *(more or ("-nodes",))], check=True, capture_output=True)
    return cert, key
