"""The broker: the HTTP API over the storage engine. `python -m broker` starts it."""

VERSION = "0.1.0"
