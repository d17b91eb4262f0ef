"""python -m broker.api: print the OpenAPI document, as a running broker serves it, for generators of clients."""

from __future__ import annotations

import sys

import msgspec

from broker.api.app import OPERATIONS
from broker.api.openapi import document

if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(document(OPERATIONS)) + b"\n")
