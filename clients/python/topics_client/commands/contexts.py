"""The file of contexts: names for brokers, with the files of their keys. The keys themselves are never in it.

The file is $XDG_CONFIG_HOME/topics/contexts.json, or below ~/.config. Only its owner can read it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class ContextError(Exception):
    """A context that does not exist, or whose files cannot be read. The message says what to do."""


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a broker is. Paths are absolute. `key` is the key of the certificate; the API key is in `key_file`."""

    url: str
    key_file: str | None = None
    ca_file: str | None = None
    cert: str | None = None
    key: str | None = None


class Contexts(msgspec.Struct, omit_defaults=True):
    """All contexts by name, and the one in use."""

    current: str | None = None
    contexts: dict[str, Context] = {}


def path() -> Path:
    """The path of the file, which need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME")
    # The specification of these directories says that relative paths are ignored.
    home = Path(base) if base and Path(base).is_absolute() else Path("~/.config").expanduser()
    return home / "topics" / "contexts.json"


def load() -> Contexts:
    """The content of the file, or nothing if there is no file. Raises ContextError."""
    try:
        return msgspec.json.decode(path().read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.DecodeError) as error:
        raise ContextError(f"The contexts in {path()} cannot be read: {_why(error)}.") from None


def save(contexts: Contexts) -> None:
    """Replaces the whole file: a reader sees the contexts before or after. Raises ContextError."""
    import tempfile  # here: every command loads this module, and few write

    target = path()
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # It has mode 0600 from the start.
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".contexts-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ContextError(f"The contexts cannot be written to {target}: {_why(error)}.") from None


def named(name: str) -> Context:
    """The context with that name. Raises ContextError if there is none."""
    known = load().contexts
    if name not in known:
        raise ContextError(f"There is no context {name!r}. {_those(known)}")
    return known[name]


def in_use() -> Context | None:
    """The context chosen by `topics context use`, if any."""
    found = load()
    return None if found.current is None else found.contexts.get(found.current)


def key_of(context: Context) -> str | None:
    """The key in the context's key file, without the white space around it. Raises ContextError."""
    if context.key_file is None:
        return None
    try:
        key = Path(context.key_file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ContextError(f"The key file {context.key_file} cannot be read: {_why(error)}.") from None
    if not key:
        raise ContextError(f"The key file {context.key_file} is empty.")
    return key


def _those(known: dict[str, Context]) -> str:
    if not known:
        return "There are none yet: `topics context add` makes one."
    return f"There are: {', '.join(sorted(known))}."


def _why(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
